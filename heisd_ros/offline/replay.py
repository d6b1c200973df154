"""`heisd replay`: the pictures and poses of a bag through the policy, without ROS and without DDS.

What does not depend on the machine's speed goes to `decisions.jsonl`, byte for byte the same in
every run; times go to `timings.jsonl`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from heisd_ros.build import build_policy
from heisd_ros.config import HeisdConfig, make_config, read_values, to_flat
from heisd_ros.decode.methods import method_config
from heisd_ros.decode.pilot import Policy
from heisd_ros.demonstrations.bag_topics import load_mapping
from heisd_ros.demonstrations.readers.rosbag2 import BagReader
from heisd_ros.errors import DataError
from heisd_ros.offline.agreement import Agreement, compare_decisions
from heisd_ros.offline.bag import (
    bag_settings,
    key_frame,
    recorded_config,
    run_records_from_bag,
    threshold_of,
)
from heisd_ros.offline.command_line import name_and_value
from heisd_ros.offline.latency_model import DeviceProfile
from heisd_ros.offline.moments import key_moments
from heisd_ros.offline.replay_notes import counts_text, projections
from heisd_ros.offline.report_page import write_report
from heisd_ros.offline.report_sections import REPLAY
from heisd_ros.offline.run_facts import machine, versions
from heisd_ros.offline.run_record import KeyFrame, RunRecord, StepRow, save_record
from heisd_ros.share import config_file
from heisd_ros.trajectory.metric import TrajectoryMeter
from heisd_ros.types import DecodeResult, Observation

PAPER_PROFILE = "profiles/a100_paper.json"
DECISIONS, TIMINGS, AGREEMENT = "decisions.jsonl", "timings.jsonl", "agreement.json"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One observation of a bag and what the policy made of it."""

    observation: Observation
    result: DecodeResult


@dataclass(frozen=True, slots=True)
class Replay:
    """A whole replay.

    Attributes:
        record: Run record; nobody judged its success.
        decisions: One plain mapping per decision, free of wall time.
        agreement: With what was recorded.
    """

    record: RunRecord
    decisions: tuple[dict[str, Any], ...]
    agreement: Agreement


def main(argv: list[str]) -> int:
    """Run the verb.

    Raises:
        HeisdError: If bag, configuration or model cannot be used.
    """
    options = _parser().parse_args(argv)
    config = _config(options)
    out = options.out or options.bag.with_name(f"{options.bag.name}_replay")
    mapping = load_mapping(options.topics) if options.topics else None
    replay = replay_bag(
        options.bag,
        build_policy(config),
        config,
        mapping=mapping,
        instruction=options.instruction,
        command=shlex.join(["heisd", "replay", *argv]),
        profile=DeviceProfile.load(options.profile or config_file(PAPER_PROFILE)),
    )
    page = write_replay(replay, options.bag, out)
    notes = " ".join(replay.record.notes)
    sys.stdout.write(
        f"{len(replay.decisions)} decisions. {notes}\n{counts_text(replay.record)}{page}\n"
    )
    return 0


def replay_bag(
    folder: str | Path,
    policy: Policy,
    config: HeisdConfig,
    *,
    mapping: Mapping[str, Any] | None = None,
    instruction: str = "",
    command: str = "",
    profile: DeviceProfile | None = None,
) -> Replay:
    """Decide on every observation of a bag.

    Args:
        folder: The bag.
        policy: Decides; its state is that of a live run, episode after episode.
        config: What the policy was built from.
        mapping: Topics of a foreign bag, see `bag_topics.load_mapping`.
        instruction: The task in words; empty takes the recorded one.
        command: Command line to name in the record.
        profile: Device that the decisions are projected on; None leaves that out.

    Raises:
        DataError: If the bag cannot be read or holds no complete observation.
    """
    with BagReader(folder, bag_settings(config, mapping)) as bag:
        steps = _decide(bag, policy, config, instruction)
        skipped = bag.skipped()
        if not steps:
            why = ", ".join(f"{reason}: {count}" for reason, count in skipped.items())
            raise DataError(
                f"bag {folder} gave no decision: no set of pictures of all cameras could be "
                f"used{f' ({why})' if why else ''}; check the camera topics and stamps"
            )
        actions = [(step.observation.stamp_ns, step.result.action) for step in steps]
        agreement = compare_decisions(actions, bag.decisions, bag.twists, config.command)
        rows = _rows(steps, config)
        frames = _key_frames(bag, steps, rows)
        end = next((status for status in bag.statuses if status.done), None)
    record = RunRecord(
        instruction=steps[0].observation.instruction,
        method=config.decode.method,
        success=None,
        rows=rows,
        frames=frames,
        suite=end.suite if end else "",
        task=end.task if end else None,
        init=end.init if end else None,
        source=f"{REPLAY} of bag {Path(folder).name}",
        config=to_flat(config),
        versions=versions(),
        machine=machine(),
        commands=(command,) if command else (),
        counts=skipped,
        notes=(
            agreement.sentence(),
            *projections([step.result.report for step in steps], config, profile),
        ),
    )
    decisions = tuple(_decision(number, step) for number, step in enumerate(steps))
    return Replay(record, decisions, agreement)


def write_replay(replay: Replay, bag: str | Path, out: str | Path) -> Path:
    """Write decisions, timings, agreement, record and page; return the page."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    timings = [{"step": n, **row.stage_ms} for n, row in enumerate(replay.record.rows)]
    (out / DECISIONS).write_text(_lines(replay.decisions), encoding="utf-8")
    (out / TIMINGS).write_text(_lines(timings), encoding="utf-8")
    facts = _plain(dataclasses.asdict(replay.agreement))
    (out / AGREEMENT).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    save_record(replay.record, out)
    return write_report([replay.record, *_recorded(bag)], out / "report.html")


def _decide(
    bag: BagReader, policy: Policy, config: HeisdConfig, instruction: str
) -> list[Replayed]:
    """Run the policy over the bag; poses reach the meter as they did in the live run."""
    meter = TrajectoryMeter(method_config(config).trajectory)
    ends = [status for status in bag.statuses if status.done]
    poses = list(bag.poses)
    steps: list[Replayed] = []
    period_s = 1.0 / config.command.control_hz
    for observation in bag.observations(instruction=instruction, period_s=period_s):
        while ends and ends[0].stamp_ns < observation.stamp_ns:
            end = ends.pop(0)
            if steps:
                policy.end_episode(end.success)
            meter.reset()
            poses = [pose for pose in poses if pose.stamp_ns > end.stamp_ns]
        while poses and poses[0].stamp_ns <= observation.stamp_ns:
            pose = poses.pop(0)
            meter.update(pose.position, pose.stamp_ns, pose.frame_id)
        seen = dataclasses.replace(observation, metric=meter.metric if bag.poses else None)
        result = policy.act(seen)
        # Without its pictures: a long bag would not fit into memory.
        steps.append(Replayed(dataclasses.replace(seen, frames=()), result))
    return steps


def _rows(steps: Sequence[Replayed], config: HeisdConfig) -> tuple[StepRow, ...]:
    start_ns, threshold = steps[0].observation.stamp_ns, threshold_of(config)
    return tuple(step_row(step, start_ns=start_ns, threshold=threshold) for step in steps)


def step_row(step: Replayed, *, start_ns: int, threshold: float) -> StepRow:
    """Return a decision that was not sent to any arm as the row of a run record."""
    action = step.result.action
    row = StepRow.of(
        step.result.report,
        step.observation.proprioception,
        stamp_s=(step.observation.stamp_ns - start_ns) * 1e-9,
        threshold=threshold,
    )
    return dataclasses.replace(
        row,
        gripper_command=float(action.values[-1]),
        tokens=tuple(map(int, action.tokens)),
        action=tuple(map(float, action.values)),
    )


def _key_frames(
    bag: BagReader, steps: Sequence[Replayed], rows: Sequence[StepRow]
) -> tuple[KeyFrame, ...]:
    """Return the pictures of the key moments, in a second pass over the bag."""
    wanted = {steps[moment.step].observation.stamp_ns: moment for moment in key_moments(rows)}
    found: list[KeyFrame] = []
    for _, frames in bag.frame_sets():
        moment = wanted.pop(min(frame.stamp_ns for frame in frames), None)
        if moment is not None:
            stamp_s = rows[moment.step].stamp_s
            found += [key_frame(frame, moment.name, moment.step, stamp_s) for frame in frames]
    return tuple(found)


def _decision(number: int, step: Replayed) -> dict[str, Any]:
    report, action = step.result.report, step.result.action
    return {
        "step": number,
        "image_ns": step.observation.stamp_ns,
        "instruction": step.observation.instruction,
        "kind": report.kind.value,
        "skipped": bool(report.skipped),
        "accept_length": float(report.accept_length),
        "forwards": int(report.forwards),
        "nodes": int(report.nodes),
        "fused": float(report.fused),
        "top_score": float(report.top_score),
        "scores": list(report.scores),
        "spread": float(report.spread),
        "gripper_consensus": float(report.gripper_consensus),
        "reason": report.reason,
        "tokens": [int(token) for token in action.tokens],
        "action": [float(value) for value in np.asarray(action.values)],
    }


def _lines(entries: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(_plain(entry), allow_nan=False) + "\n" for entry in entries)


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with null where a number is not finite."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in entry.items()
    }


def _recorded(bag: str | Path) -> tuple[RunRecord, ...]:
    """Return the recorded run itself for comparison, if the bag holds decisions."""
    try:
        return run_records_from_bag(bag)[:1]
    except DataError:
        return ()


def _config(options: argparse.Namespace) -> HeisdConfig:
    """Return the recorded configuration under the given files, settings and method."""
    values = to_flat(recorded_config(options.bag))
    for file in options.config:
        values.update(read_values(file))
    for setting in options.set:
        name, value = name_and_value(setting, "--set")
        values[name] = yaml.safe_load(value)
    if options.method:
        values["decode.method"] = options.method
    return make_config(values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heisd replay", description=__doc__)
    add = parser.add_argument
    add("--bag", type=Path, required=True, help="folder of the bag (rosbag2)")
    add("--out", type=Path, help="folder to write [<bag>_replay]")
    add("--method", default="", help="decoding method [as recorded, else heisd]")
    add("--topics", type=Path, help="YAML that says which topic is what, for foreign bags")
    add("--profile", type=Path, help="device profile of the projection [the paper's A100]")
    add("--instruction", default="", help="the task in words [as recorded]")
    add("--config", type=Path, action="append", default=[], help="YAML file; may be repeated")
    add("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    return parser
