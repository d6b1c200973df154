"""What an ingest has done so far: a profile file and a journal, so that it can go on after a kill.

`ingest.json` says what is being read and how; `ingest.jsonl` gets one line per finished piece,
after the piece's episode files are complete. A line that was cut off means that its piece is done
again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from heisd_ros.demonstrations.folder_lock import lock_folder
from heisd_ros.errors import DataError
from heisd_ros.files import PARTIAL, write_whole

PROFILE_FILE = "ingest.json"
JOURNAL_FILE = "ingest.jsonl"


@dataclass(frozen=True, slots=True)
class WrittenEpisode:
    """One episode file.

    Attributes:
        file: Path below the folder.
        task: Normalised instruction.
        recorded: Steps the source had.
        steps: Steps that were kept.
        success: Verdict.
        digest: Of its content; equal for copies.
    """

    file: str
    task: str
    recorded: int
    steps: int
    success: bool
    digest: str


@dataclass(frozen=True, slots=True)
class PieceResult:
    """What became of one piece.

    Attributes:
        piece: Its name.
        episodes: Episodes that were written.
        recorded: Task -> steps the source had.
        dropped_episodes: Reason -> episodes that were left out.
        dropped_steps: Reason -> steps that were left out of written episodes.
        notes: Things that were noticed, with counts.
    """

    piece: str
    episodes: tuple[WrittenEpisode, ...] = ()
    recorded: Mapping[str, int] = field(default_factory=dict)
    dropped_episodes: Mapping[str, int] = field(default_factory=dict)
    dropped_steps: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over all pieces; fields as in `PieceResult`."""

    episodes: tuple[WrittenEpisode, ...]
    recorded: Counter[str]
    dropped_episodes: Counter[str]
    dropped_steps: Counter[str]
    notes: Counter[str]

    @property
    def kept(self) -> Counter[str]:
        """Task -> written steps."""
        kept: Counter[str] = Counter()
        for episode in self.episodes:
            kept[episode.task] += episode.steps
        return kept


class IngestJournal:
    """The journal of one folder; use `open_journal`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Take up the journal of a folder, or begin it.

        Args:
            folder: Where the episodes are written.
            facts: What is read and how, as JSON; must be what the folder was begun with.

        Raises:
            DataError: If the folder holds episodes that were read in another way.
        """
        self._folder = folder
        self._path = folder / JOURNAL_FILE
        self.results: dict[str, PieceResult] = {}
        wanted = json.loads(json.dumps(facts))
        found = _read_facts(folder)
        results = list(_read_results(self._path))
        if found is not None and found != wanted and any(r.episodes for r in results):
            changed = sorted(key for key in wanted if found.get(key) != wanted[key])
            raise DataError(
                f"{folder} was begun with another {', '.join(changed) or 'set of options'}; give "
                "another --out, or remove the folder"
            )
        if found != wanted:
            results = []
            self._path.unlink(missing_ok=True)
            write_whole(folder / PROFILE_FILE, json.dumps(wanted, indent=1, sort_keys=True))
        for result in results:
            if all((folder / episode.file).is_file() for episode in result.episodes):
                self.results[result.piece] = result
        self._rewrite()

    def add(self, result: PieceResult) -> None:
        """Remember a finished piece."""
        self.results[result.piece] = result
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(result)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def totals(self) -> Totals:
        """Return the sums over all finished pieces, of earlier runs too."""
        return totals_of(self.results.values())

    def _rewrite(self) -> None:
        """Drop torn lines, so that the next one starts on its own."""
        lines = [json.dumps(asdict(result)) + "\n" for result in self.results.values()]
        write_whole(self._path, "".join(lines))


def totals_of(results: Iterable[PieceResult]) -> Totals:
    """Return the sums over pieces."""
    pieces = list(results)
    sums: list[Counter[str]] = []
    for name in ("recorded", "dropped_episodes", "dropped_steps", "notes"):
        total: Counter[str] = Counter()
        for piece in pieces:
            total.update(getattr(piece, name))
        sums.append(Counter({key: count for key, count in total.items() if count}))
    return Totals(tuple(e for piece in pieces for e in piece.episodes), *sums)


@contextmanager
def open_journal(folder: Path, facts: Mapping[str, Any]) -> Iterator[IngestJournal]:
    """Lock a folder and open its journal; half-written files of a killed run are removed.

    Raises:
        DataError: If another ingest is at work there, or see `IngestJournal`.
    """
    try:
        descriptor = lock_folder(folder)
    except BlockingIOError as error:
        raise DataError(f"another ingest is at work in {folder}; wait for it") from error
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error}; give another --out") from error
    try:
        for stale in folder.rglob(f"*.{PARTIAL}"):
            stale.unlink(missing_ok=True)
        yield IngestJournal(folder, facts)
    finally:
        os.close(descriptor)


def read_ingests(folder: Path) -> list[tuple[dict[str, Any], Totals]]:
    """Return what every ingest below a folder said and counted, for the store's manifest."""
    found = []
    for path in sorted(folder.rglob(PROFILE_FILE)):
        facts = _read_facts(path.parent)
        if facts is not None:
            found.append((facts, totals_of(_read_results(path.with_name(JOURNAL_FILE)))))
    return found


def _read_facts(folder: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        content = json.loads((folder / PROFILE_FILE).read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else None
    return None


def _read_results(path: Path) -> Iterator[PieceResult]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, TypeError):  # torn by a kill: the piece is done again
            content = json.loads(line)
            episodes = tuple(WrittenEpisode(**episode) for episode in content.pop("episodes"))
            yield PieceResult(episodes=episodes, **content)
