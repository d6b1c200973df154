"""A recorded live run as run records: what really went over the topics, decision by decision."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.config import HeisdConfig, load_config, make_config, to_flat
from heisd_ros.decode.methods import METHODS
from heisd_ros.demonstrations.bag_decisions import RecordedDecision, RecordedStatus
from heisd_ros.demonstrations.bag_files import BagFiles
from heisd_ros.demonstrations.readers.rosbag2 import BagReader, BagSettings
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.offline.moments import key_moments
from heisd_ros.offline.run_record import NAN, KeyFrame, RunRecord, StepRow
from heisd_ros.types import Frame

CONFIG_FACT = "heisd_config"
"""Key of the configuration, as JSON, in the metadata that our recorder writes."""


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """The decisions of one episode and how it ended; `end` is None if nobody said so."""

    decisions: tuple[RecordedDecision, ...]
    end: RecordedStatus | None


def run_record_from_bag(folder: str | Path, *, episode: int = 0, **facts: Any) -> RunRecord:  # noqa: ANN401
    """Return the record of one episode of a recorded live run.

    Args:
        folder: The bag.
        episode: Number of the episode in the bag.
        facts: Fields of `RunRecord` that a bag cannot know: `machine`, `versions`, `commands` ...

    Raises:
        DataError: If the bag cannot be read, or holds no such episode or no decision.
        MissingDependencyError: If rosbags is not installed.
    """
    records = run_records_from_bag(folder, **facts)
    if not 0 <= episode < len(records):
        raise DataError(f"bag {folder} holds {len(records)} episodes, there is no number {episode}")
    return records[episode]


def run_records_from_bag(folder: str | Path, **facts: Any) -> tuple[RunRecord, ...]:  # noqa: ANN401
    """Return one record per episode of a recorded live run; see `run_record_from_bag`."""
    config = recorded_config(folder)
    with BagReader(folder, bag_settings(config)) as bag:
        if not bag.decisions:
            raise DataError(
                f"bag {folder} holds no decision: no decode_report was recorded; feed its "
                "pictures through a policy with `heisd replay`"
            )
        episodes = split_episodes(bag.decisions, bag.statuses)
        rows = [_rows(episode, bag, config) for episode in episodes]
        frames = _key_frames(episodes, rows, bag)
        counts = bag.skipped()
    return tuple(
        _record(episode, rows[number], frames[number], config, {"counts": counts, **facts})
        for number, episode in enumerate(episodes)
    )


def split_episodes(
    decisions: Sequence[RecordedDecision], statuses: Sequence[RecordedStatus]
) -> list[RecordedEpisode]:
    """Return the decisions of each episode: up to the status that says it is done.

    Decisions after the last such status form an episode without an end.
    """
    episodes, rest = [], list(decisions)
    for end in (status for status in statuses if status.done):
        mine = [decision for decision in rest if decision.image_ns <= end.stamp_ns]
        rest = rest[len(mine) :]
        if mine:
            episodes.append(RecordedEpisode(tuple(mine), end))
    if rest:
        episodes.append(RecordedEpisode(tuple(rest), None))
    return episodes


def recorded_config(folder: str | Path) -> HeisdConfig:
    """Return the configuration that our recorder kept, the shipped one for any other bag.

    Settings that this version no longer knows are left out.
    """
    with BagFiles(folder) as files:
        text = files.facts.get(CONFIG_FACT, "")
    if not text:
        return load_config()
    known = to_flat(HeisdConfig())
    try:
        values = {name: value for name, value in json.loads(text).items() if name in known}
        return make_config(values)
    except (ValueError, AttributeError, ConfigError) as error:
        raise DataError(f"bag {folder}: its {CONFIG_FACT} is damaged: {error}") from error


def bag_settings(config: HeisdConfig, mapping: Mapping[str, Any] | None = None) -> BagSettings:
    """Return what the configuration says about reading a bag."""
    return BagSettings(
        cameras=config.perception.cameras,
        finger_joints=config.ros.finger_joints,
        gripper_max_m=config.command.gripper_max_m,
        pairing_tolerance_s=config.perception.pairing_tolerance_s,
        oldest_state_s=config.command.image_timeout_s,
        mapping=mapping,
        forces=config.verify.tighten_max_force > 0.0,
    )


def threshold_of(config: HeisdConfig) -> float:
    """Return the boundary on F, nan for a method that has none."""
    method = METHODS.get(config.decode.method)
    follows_boundary = method is None or method.fixed is None
    return config.trajectory.threshold if follows_boundary else NAN


def _rows(episode: RecordedEpisode, bag: BagReader, config: HeisdConfig) -> tuple[StepRow, ...]:
    start_ns = episode.decisions[0].image_ns
    threshold = threshold_of(config)
    return tuple(
        row_of(decision, bag, start_ns=start_ns, threshold=threshold)
        for decision in episode.decisions
    )


def row_of(
    decision: RecordedDecision, bag: BagReader, *, start_ns: int, threshold: float
) -> StepRow:
    """Return a recorded decision as the row of a run record."""
    row = StepRow.of(
        decision.report,
        bag.state_at(decision.image_ns),
        stamp_s=(decision.image_ns - start_ns) * 1e-9,
        threshold=threshold,
    )
    return dataclasses.replace(
        row,
        twist=tuple(map(float, decision.twist)),
        gripper_command=decision.opening,
        guard=decision.guard,
        tokens=tuple(map(int, decision.tokens)) if decision.decided else (),
        action=tuple(map(float, decision.action)) if decision.decided else (),
    )


def _key_frames(
    episodes: Sequence[RecordedEpisode], rows: Sequence[tuple[StepRow, ...]], bag: BagReader
) -> list[tuple[KeyFrame, ...]]:
    """Return the pictures of every episode's key moments; one pass over the bag's pictures."""
    wanted: dict[int, list[tuple[int, str, int, float]]] = {}
    for number, episode in enumerate(episodes):
        for moment in key_moments(rows[number]):
            stamp_ns = episode.decisions[moment.step].image_ns
            entry = (number, moment.name, moment.step, rows[number][moment.step].stamp_s)
            wanted.setdefault(stamp_ns, []).append(entry)
    found: list[list[KeyFrame]] = [[] for _ in episodes]
    for _, frames in bag.frame_sets():
        for number, name, step, stamp_s in wanted.pop(min(f.stamp_ns for f in frames), []):
            found[number] += [key_frame(frame, name, step, stamp_s) for frame in frames]
    return [tuple(frames) for frames in found]


def key_frame(frame: Frame, moment: str, step: int, stamp_s: float) -> KeyFrame:
    """Return a camera picture as the picture of a moment."""
    return KeyFrame(moment, step, stamp_s, frame.camera, np.ascontiguousarray(frame.image))


def _record(
    episode: RecordedEpisode,
    rows: tuple[StepRow, ...],
    frames: tuple[KeyFrame, ...],
    config: HeisdConfig,
    facts: Mapping[str, Any],
) -> RunRecord:
    end, first = episode.end, episode.decisions[0]
    record = RunRecord(
        instruction=first.instruction,
        method=config.decode.method,
        success=None if end is None else end.success,
        rows=rows,
        frames=frames,
        suite="" if end is None else end.suite,
        task=None if end is None else end.task,
        init=None if end is None else end.init,
        steps=0 if end is None else end.step,
        end_reason="" if end is None else end.reason,
        crash=_crash(end),
        source="recorded from DDS topics",
        config=to_flat(config),
    )
    return dataclasses.replace(record, **facts)


def _crash(end: RecordedStatus | None) -> str:
    crashed = end is not None and end.reason == "crash"
    return "the simulation ended in an exception; see its log" if crashed else ""
