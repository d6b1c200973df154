"""Configure, activate, deactivate, clean up, again and again, by services."""

from __future__ import annotations

from pathlib import Path

from ros_fakes import wait_until

from bench.reliability.outcome import Figure, Outcome, Row, Settings, all_of, none_of
from bench.reliability.world import START_S, Operator, World, need

STEPS = ("configure", "activate", "deactivate", "cleanup")
NODES = ("perception_node", "trajectory_node", "decoder_node")
SETTLED = 3
"""Loops before the first count: what is made once has been made by then."""


def loops(settings: Settings) -> Outcome:
    """Drive three processes through all states and count what they hold."""
    runs, failures = settings.runs(15, 200), 0
    held: dict[str, tuple[int, int, float]] = {}
    growth = {"descriptors": 0, "threads": 0, "memory": 0.0}
    with World(settings.logs) as world:
        robot = world.operator
        for node in NODES:
            world.start(node, "-p", "ros.autostart:=false")
        for run in range(runs + SETTLED):
            failures += sum(_loop(robot, node) for node in NODES)
            if run == SETTLED - 1:
                held = {node: _held(world.processes[node].pid) for node in NODES}
        for node in NODES:
            now = _held(world.processes[node].pid)
            for name, new, old in zip(growth, now, held[node], strict=True):
                growth[name] = max(growth[name], new - old)
        deaths = world.deaths()
        need(wait_until(lambda: robot.state(NODES[0]) == "unconfigured", START_S), "the last state")
    total = runs + SETTLED
    return Outcome(
        f"{runs} x {len(NODES)} nodes",
        (
            all_of("loops without a refusal", total * len(NODES) - failures, total * len(NODES)),
            Figure("more open files, worst node", growth["descriptors"], high=2),
            Figure("more threads, worst node", growth["threads"], high=0),
            Figure("more memory, worst node", growth["memory"], "MB", high=5.0),
            none_of("processes that ended", deaths),
        ),
        f"Counted from loop {SETTLED} on; the model is a script.",
    )


def _loop(robot: Operator, node: str) -> bool:
    """Return whether a transition was refused."""
    return not all(robot.change(node, step) for step in STEPS)


def _held(pid: int) -> tuple[int, int, float]:
    """Return open files, threads and resident memory, MB."""
    process = Path(f"/proc/{pid}")
    files = len(list((process / "fd").iterdir()))
    threads = len(list((process / "task").iterdir()))
    return files, threads, resident_mb(pid)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


ROWS = (
    Row(
        "bring_up",
        "Configure, activate, deactivate, clean up in a loop",
        "no failure, at most 2 more open files, 5 MB and no thread",
        loops,
    ),
)
