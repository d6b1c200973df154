"""What is known about a store on a Qdrant server before a row is read; no client in here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from heisd_ros.demonstrations.manifest import (
    Manifest,
    TaskRecord,
    manifest_from_text,
    manifest_to_text,
)
from heisd_ros.errors import StoreError

OLDEST_SERVER = (1, 11)
"""The first release that knows tenants of a payload index (`is_tenant`)."""
SAFE_DISTANCE = 1
"""Minor releases that client and server may be apart, by Qdrant's own rule."""


@dataclass(frozen=True)
class Export:
    """A store as it lies on a server.

    Attributes:
        manifest: Of the store that was copied.
        name: Collection that was written; an alias may lead to it.
        per_task: True if every task has a collection of its own, as in the paper.
    """

    manifest: Manifest
    name: str
    per_task: bool = False

    @cached_property
    def digest(self) -> str:
        """Mark in every row: a row of another export, older or newer, has another one."""
        text = json.dumps([manifest_to_text(self.manifest), self.name, self.per_task])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def tasks(self) -> Mapping[str, TaskRecord]:
        """Task key -> its record."""
        return {task.key: task for task in self.manifest.tasks}

    def collection_of(self, task: str) -> str:
        """Return the collection that holds the rows of a task."""
        if not self.per_task:
            return self.name
        return f"{self.name}-{hashlib.sha256(task.encode()).hexdigest()[:16]}"

    @property
    def collections(self) -> tuple[str, ...]:
        """Every collection with rows, in row order of the tasks."""
        return tuple(dict.fromkeys(self.collection_of(task) for task in self.tasks))

    def to_payload(self) -> dict[str, Any]:
        """Return the payload of the point that carries this."""
        return {
            "task": "",
            "manifest": manifest_to_text(self.manifest),
            "name": self.name,
            "per_task": self.per_task,
        }


def export_from_payload(payload: Mapping[str, Any], collection: str) -> Export:
    """Read and check what `Export.to_payload` wrote.

    Raises:
        StoreError: If it is damaged.
    """
    name, per_task = payload.get("name"), payload.get("per_task")
    if not isinstance(name, str) or not isinstance(per_task, bool):
        raise StoreError(
            f"collection {collection!r}: expected its name and layout beside the manifest, got "
            f"{name!r} and {per_task!r}; export the store again"
        )
    text = str(payload.get("manifest", ""))
    return Export(manifest_from_text(text, f"collection {collection!r}"), name, per_task)


def is_task_collection(name: str, base: str) -> bool:
    """Return whether a collection holds one task of the export `base`."""
    return re.fullmatch(re.escape(base) + r"-[0-9a-f]{16}", name) is not None


def check_version(server: str, client: str) -> str:
    """Return a warning if the two releases are far apart; empty if all is well.

    Args:
        server: Release that the server reports, like 1.15.3.
        client: Release of qdrant-client.

    Raises:
        StoreError: If the server is too old for what we ask of it.
    """
    found, ours = _release(server), _release(client)
    if found is None or ours is None:
        return f"cannot tell whether server {server!r} and qdrant-client {client!r} fit"
    if found < OLDEST_SERVER:
        oldest = ".".join(str(part) for part in OLDEST_SERVER)
        raise StoreError(f"expected a Qdrant server of release {oldest} or newer, got {server}")
    if found[0] != ours[0] or abs(found[1] - ours[1]) > SAFE_DISTANCE:
        return (
            f"Qdrant server {server} and qdrant-client {client} are more than {SAFE_DISTANCE} "
            "minor release apart; install a client of the server's release"
        )
    return ""


def _release(text: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
