"""The demonstration store: a folder or a server."""

from __future__ import annotations

from pathlib import Path

from heisd_ros.config import HeisdConfig
from heisd_ros.demonstrations.store_address import is_server
from heisd_ros.errors import StoreError
from heisd_ros.protocols import DemonstrationStore
from heisd_ros.share import weights_dir

NONE = "none"
"""Value of `retrieval.store` and `draft.drafter` that switches the part off."""


def build_store(config: HeisdConfig, fingerprint: str) -> DemonstrationStore | None:
    """Open the demonstration store for an encoder; None if it is switched off.

    Raises:
        StoreError: If a folder is missing, broken, or was built with another encoder, or an address
            is malformed. A server that is away is only logged: drafts come from it when it returns.
    """
    if config.retrieval.store == NONE:
        return None
    if is_server(config.retrieval.store):
        return _server_store(config, fingerprint)
    from heisd_ros.demonstrations.store import MemoryStore

    path = Path(config.retrieval.store) if config.retrieval.store else weights_dir() / "store"
    if not path.is_dir():
        raise StoreError(
            f"no demonstration store at {path}; build one with `heisd build-db`, or set "
            f"retrieval.store to {NONE!r}"
        )
    return MemoryStore.open(
        path,
        fingerprint=fingerprint,
        cameras=config.perception.cameras,
        preprocessing=embedding_facts(config),
    )


def _server_store(config: HeisdConfig, fingerprint: str) -> DemonstrationStore:
    from heisd_ros.demonstrations.qdrant_store import QdrantStore

    return QdrantStore.open(
        config.retrieval.store,
        fingerprint=fingerprint,
        cameras=config.perception.cameras,
        preprocessing=embedding_facts(config),
        timeout_s=config.retrieval.timeout_s,
        pause_s=config.retrieval.pause_s,
    )


def embedding_facts(config: HeisdConfig) -> dict[str, float | str]:
    """Return what a store's embeddings depend on beside the encoder; stored in its manifest."""
    perception = config.perception
    return {
        "crop_area": perception.crop_area,
        "pool": perception.pool,
        "normalise": perception.normalise,
    }
