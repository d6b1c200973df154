"""What an evaluation runs: every method from the same official initial states.

The protocol is OpenVLA's on LIBERO: ten steps without motion, then at most so many steps as the
suite allows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heisd_ros.config import HeisdConfig, to_flat
from heisd_ros.decode.methods import method_named
from heisd_ros.demonstrations.store_address import is_server
from heisd_ros.errors import ConfigError
from heisd_ros.offline.records import EpisodeKey
from heisd_ros.share import weights_dir
from heisd_ros.simulation.rollout import MAX_STEPS

REPLAY = "replay"
"""The open-loop baseline: one demonstration, no model, no pictures."""

RUN_FILE = "run.json"
EPISODES = "episodes"

SECTIONS = ("model", "perception", "trajectory", "retrieval", "draft", "verify", "skip")
"""Configuration that an episode depends on, beside `FIELDS`."""

FIELDS = ("simulation.image_size", "command.gripper_max_m")

MARK_BYTES = 1 << 20
"""Bytes hashed at either end of a file: enough to tell checkpoints apart, quick for large ones."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to evaluate.

    Attributes:
        suite: LIBERO suite.
        tasks: Task numbers.
        inits: Official initial states.
        methods: Labels: a method's name, `name@store` for another store, or `replay`.
        out: Folder of the run.
        config: Everything else; `decode.method` is set per method.
        stores: Store label -> folder or server.
        demos: Demonstrations for `replay`.
        max_steps: Longest episode; 0 takes the suite's.
        shadow: Also ask autoregression about every observation of every method.
        processes: Episodes at a time; each holds a simulator of 2 GB.
    """

    suite: str
    tasks: tuple[int, ...]
    inits: tuple[int, ...]
    methods: tuple[str, ...]
    out: Path
    config: HeisdConfig
    stores: Mapping[str, str] = field(default_factory=dict)
    demos: Path | None = None
    max_steps: int = 0
    shadow: bool = False
    processes: int = 1

    @property
    def cap(self) -> int:
        """Steps after which an episode counts as failed.

        Raises:
            ConfigError: If the suite has no known limit and none was given.
        """
        if not self.max_steps and self.suite not in MAX_STEPS:
            raise ConfigError(
                f"no step limit known for suite {self.suite!r}, known: {', '.join(MAX_STEPS)}; "
                "give --max-steps"
            )
        return self.max_steps or MAX_STEPS[self.suite]

    @property
    def folder(self) -> Path:
        """Where the episodes' files are."""
        return self.out / EPISODES

    def check(self) -> None:
        """Refuse what would fail only after minutes.

        Raises:
            ConfigError: If a method, a store label or the step limit is unknown, or `replay` has
                no demonstrations.
        """
        _ = self.cap
        for label in self.methods:
            name, store = split_label(label)
            if name == REPLAY and self.demos is None:
                raise ConfigError(f"method {REPLAY!r} needs the demonstrations: give --demos")
            if name != REPLAY:
                method_named(name)
            if store and store not in self.stores:
                raise ConfigError(
                    f"method {label!r} wants a store {store!r}: give --store-as {store}=FOLDER"
                )

    def episodes(self) -> list[EpisodeKey]:
        """Return every episode, task by task; those without pictures last."""
        seeing = [label for label in self.methods if label != REPLAY]
        blind = [label for label in self.methods if label == REPLAY]
        return [
            EpisodeKey(self.suite, task, init, label)
            for group in (seeing, blind)
            for task in self.tasks
            for init in self.inits
            for label in group
        ]

    def pending(self) -> list[list[EpisodeKey]]:
        """Return the episodes without a file, the methods of one initial state together."""
        groups: dict[tuple[int, int, bool], list[EpisodeKey]] = {}
        for key in self.episodes():
            if not (self.folder / key.file_name).exists():
                groups.setdefault((key.task, key.init, key.method == REPLAY), []).append(key)
        return list(groups.values())


def split_label(label: str) -> tuple[str, str]:
    """Return (method, store label) of `method@store`; the store is empty for the default one."""
    name, _, store = label.partition("@")
    return name, store


def claim_folder(plan: Plan, facts: Mapping[str, Any]) -> None:
    """Write the run's `run.json`, or refuse a folder whose episodes have other settings.

    Args:
        plan: What will be run.
        facts: Provenance of this call; every call on the folder adds one.

    Raises:
        ConfigError: If the folder holds episodes that these would not be comparable with.
        StoreError: If a store on a server cannot be reached: its episodes would silently be AR's.
    """
    path = plan.out / RUN_FILE
    settings = _settings(plan)
    runs = []
    if path.is_file():
        old = json.loads(path.read_text(encoding="utf-8"))
        _check_same(plan, settings, old["settings"])
        for part in ("stores", "marks"):
            settings[part] = {**old["settings"][part], **settings[part]}
        runs = old["runs"]
    plan.out.mkdir(parents=True, exist_ok=True)
    content = {"settings": settings, "runs": [*runs, dict(facts)]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def mark(folder: Path) -> str:
    """Return a hash of a folder's files, to notice that it was replaced; not a checksum."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(MARK_BYTES))
            file.seek(max(0, size - MARK_BYTES))
            digest.update(file.read(MARK_BYTES))
    return digest.hexdigest()[:16]


def _settings(plan: Plan) -> dict[str, Any]:
    """Return what an episode depends on beside its key, as JSON gives it back."""
    config = {
        name: value
        for name, value in to_flat(plan.config).items()
        if name in FIELDS or name.partition(".")[0] in SECTIONS
    }
    folders = {"checkpoint": plan.config.model.checkpoint or str(weights_dir() / "small_vla")}
    folders["store"] = plan.config.retrieval.store or str(weights_dir() / "store")
    folders.update({f"store {label}": folder for label, folder in plan.stores.items()})
    settings = {
        "suite": plan.suite,
        "max_steps": plan.cap,
        "stores": dict(plan.stores),
        "config": config,
        "marks": {name: found for name, path in folders.items() if (found := _mark(path))},
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def _mark(place: str) -> str:
    """Return the mark of a folder or of a store on a server; empty if there is no such folder."""
    if is_server(place):
        from heisd_ros.demonstrations.qdrant_store import digest_of

        return digest_of(place)
    return mark(Path(place)) if Path(place).is_dir() else ""


def _check_same(plan: Plan, settings: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    changed = [name for name in ("suite", "max_steps") if settings[name] != old[name]]
    for part in ("config", "stores", "marks"):
        changed += [k for k, v in settings[part].items() if old[part].get(k, v) != v]
    if changed:
        raise ConfigError(
            f"{plan.out} holds episodes made with another {', '.join(changed)}; give another "
            f"--out, or the settings of its {RUN_FILE}"
        )
