"""`heisd demo`: a simulated arm driven by the real nodes over DDS, and the report of the run.

Each method plays the same initial state. Simulation, perception, trajectory, decoder and recorder
are processes of their own; time stands still while a decision is made (lockstep), so a slow
computer gives the same run as a fast one.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

from heisd_ros.config import HeisdConfig, make_config, read_values, to_flat
from heisd_ros.decode.report import summarise
from heisd_ros.errors import DataError
from heisd_ros.offline.bag import run_record_from_bag
from heisd_ros.offline.command_line import name_and_value
from heisd_ros.offline.demo_checks import check_all
from heisd_ros.offline.fleet import Fleet
from heisd_ros.offline.report_page import write_report
from heisd_ros.offline.report_sections import method_name
from heisd_ros.offline.run_facts import machine, versions
from heisd_ros.offline.run_record import RunRecord, save_record
from heisd_ros.share import config_file, share_dir

LISTENERS = ("recorder_node", "perception_node", "trajectory_node", "decoder_node")
SIMULATION = "simulation_node"
START_S = 240.0
"""Loading the model twice on a busy two-core machine has taken most of a minute."""
STEP_S = 30.0
"""Longest wall time of one control step before the run is given up."""
EXIT_INTERRUPTED = 130
READY = "ready: perception"
PROGRESS = re.compile(r"progress: (.*)")
BOTH = ("heisd", "ar")


def main(argv: list[str]) -> int:
    """Run the verb.

    Raises:
        HeisdError: If something is missing, or a node ended before its time.
    """
    options = _parser().parse_args(argv)
    methods = BOTH if options.method == "both" else (options.method,)
    config = demo_config(options)
    check_all(config, methods)
    out = options.out or Path("runs") / f"demo-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty; name a new folder with --out")
    command = shlex.join(["heisd", "demo", *argv])
    _say(
        f"LIBERO {config.simulation.suite}, task {config.simulation.task}, initial state "
        f"{config.simulation.init}; one process per node, DDS domain {options.domain_id}"
    )
    records = []
    try:
        for method in methods:
            chosen = make_config({**to_flat(config), "decode.method": method})
            record = play(chosen, out / method, domain_id=options.domain_id, command=command)
            save_record(record, out / method)
            _say(outcome_line(record))
            records.append(record)
    except KeyboardInterrupt:
        _say("interrupted; all processes were stopped")
        return EXIT_INTERRUPTED
    page = write_report(records, out / "report.html")
    _say(f"report: {page.resolve()}")
    return 0 if all(not record.crash for record in records) else 1


def play(config: HeisdConfig, folder: Path, *, domain_id: int, command: str = "") -> RunRecord:
    """Play one episode over DDS, record it, and return its record.

    Args:
        config: Of all nodes.
        folder: New folder for parameters, logs and the bag.
        domain_id: ROS domain of the run; nothing else may use it.
        command: Command line to name in the record.

    Raises:
        NodeFailedError: If a node ends before its time or the episode does not end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bag = folder / "bag"
    params = write_parameters(config, bag, folder / "params.yaml")
    name = config.decode.method
    _say(f"[{name}] starting {len(LISTENERS) + 1} processes, logs in {folder}")
    with Fleet(folder, run_environment(domain_id)) as fleet:
        for node in LISTENERS:
            fleet.start_node(node, node_arguments(node, params))
        fleet.wait_for(
            lambda: READY in fleet.log("recorder_node"),
            alive=LISTENERS,
            timeout_s=START_S,
            what="the start of the nodes",
        )
        fleet.start_node(SIMULATION, node_arguments(SIMULATION, params))
        progress = _Progress(fleet, name)
        fleet.wait_for(
            lambda: (
                fleet.exit_code("recorder_node") is not None
                or fleet.exit_code(SIMULATION) is not None
            ),
            alive=LISTENERS[1:],
            timeout_s=START_S + STEP_S * config.simulation.max_steps,
            what="the end of the episode",
            each_second=progress.tell,
        )
        _let_the_recorder_end(fleet)
    return run_record_from_bag(
        bag, machine=machine(), versions=versions(), commands=(command,) if command else ()
    )


def _let_the_recorder_end(fleet: Fleet) -> None:
    """Give the recorder the time to hear of the end; a simulation that failed says why."""
    code = fleet.exit_code(SIMULATION)
    if code not in (None, 0, 1):  # 1: the task was not solved
        fleet.check_alive([SIMULATION])
    fleet.wait_for(
        lambda: fleet.exit_code("recorder_node") is not None,
        alive=(),
        timeout_s=STEP_S,
        what=f"the recorder's end ({fleet.last_words(SIMULATION, code)})",
    )


def demo_config(options: argparse.Namespace) -> HeisdConfig:
    """Return the configuration of the demo: simulated Panda, calibration, then the options."""
    files = [config_file("embodiments/libero_panda.yaml")]
    calibration = share_dir() / "config" / "calibration" / f"{options.suite}.yaml"
    files += [calibration] if calibration.is_file() else []
    # One thread: lockstep gives each process the cores in turn, and threads that wait for each
    # other on a busy machine cost far more than they bring with the small model.
    values: dict[str, Any] = {"model.threads": 1}
    for file in [*files, *options.config]:
        values.update(read_values(file))
    values.update(
        {
            "simulation.suite": options.suite,
            "simulation.task": options.task,
            "simulation.init": options.init,
            "simulation.clock": "lockstep",
            "simulation.episodes": 1,
            "simulation.timeout_s": STEP_S,
            "ros.on_failed_start": "exit",
        }
    )
    if options.max_steps:
        values["simulation.max_steps"] = options.max_steps
    if options.checkpoint:
        values["model.checkpoint"] = str(options.checkpoint)
    if options.store:
        values["retrieval.store"] = options.store
    for setting in options.set:
        key, value = name_and_value(setting, "--set")
        values[key] = yaml.safe_load(value)
    return make_config(values)


def write_parameters(config: HeisdConfig, bag: Path, path: Path) -> Path:
    """Write the parameter file that all nodes of the run are started with."""
    values = {**to_flat(config), "record.folder": str(bag), "record.episodes": 1}
    tree: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, key = name.split(".")
        tree.setdefault(section, {})[key] = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump({"/**": {"ros__parameters": tree}}, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def node_arguments(node: str, params: Path) -> list[str]:
    """Return the ROS arguments of a node; only perception to decoder live in simulated time."""
    simulated = node not in (SIMULATION, "recorder_node")
    return ["--params-file", str(params), "-p", f"use_sim_time:={str(simulated).lower()}"]


def run_environment(domain_id: int) -> dict[str, str]:
    """Return the variables of all processes: a private domain on this machine, no window."""
    return {
        "ROS_DOMAIN_ID": str(domain_id),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl"),
        # Two processes that wait for each other in turn must not spin meanwhile.
        "OMP_WAIT_POLICY": "passive",
    }


def outcome_line(record: RunRecord) -> str:
    """Return how a run went, in one line."""
    figures = summarise(record.reports())
    return (
        f"[{record.method}] {method_name(record)}: {record.outcome} after {record.steps} steps, "
        f"{figures.forwards_per_step:.2f} forward passes per decision, accept length "
        f"{figures.accept_length:.2f}, {100 * figures.skip_share:.0f} % executed without "
        f"verification, median decision {figures.total_ms_p50:.1f} ms"
    )


class _Progress:
    """Shows the recorder's newest line of progress, once each."""

    def __init__(self, fleet: Fleet, method: str) -> None:
        self._fleet, self._method, self._shown = fleet, method, ""

    def tell(self) -> None:
        lines = PROGRESS.findall(self._fleet.log("recorder_node"))
        if lines and lines[-1] != self._shown:
            self._shown = lines[-1]
            _say(f"[{self._method}] {self._shown}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heisd demo", description=__doc__)
    add = parser.add_argument
    add("--suite", default="libero_spatial", help="LIBERO suite (default %(default)s)")
    add("--task", type=int, default=0, help="task number in the suite (default %(default)s)")
    add("--init", type=int, default=0, help="official initial state, 0-49 (default %(default)s)")
    add("--method", default="both", help="both, or a method's name (default %(default)s)")
    add("--out", type=Path, help="new folder [runs/demo-<date>-<time>]")
    add("--max-steps", type=int, default=0, help="control steps before it counts as failed [220]")
    add("--checkpoint", type=Path, help="folder of the model [the shipped one]")
    add("--store", help="folder or server of the demonstration store [the shipped one]")
    add("--config", type=Path, action="append", default=[], help="YAML file; may be repeated")
    add("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    add(
        "--domain-id",
        type=int,
        default=10 + os.getpid() % 90,
        help="ROS domain of the run, 0-101 [from the process number]",
    )
    return parser
