"""A demonstration server that is killed or hangs, and returns, under a running decoder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from heisd_ros.msg import DecodeReport
from ros import stored_picture
from ros_fakes import wait_until

from bench.reliability.outcome import Figure, Outcome, Row, Settings, milliseconds, none_of
from bench.reliability.world import PATIENCE_S, START_S, TESTS, Operator, World, need, pause
from heisd_ros.config import RetrievalConfig

HZ = 10.0
OUTAGE_S = 2.5
"""Longer than the pause after a failure: the store is asked again meanwhile."""
TIMEOUT_S = RetrievalConfig().timeout_s
ADDED_S, BACK_S = 0.01, 2.0
STAGE = "draft"
"""The stage of a decision in which the store is asked."""


class Server:
    """The loopback server in a process of its own, always on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, 0
        self.start()

    def start(self) -> None:
        """Start; returns once it listens."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", stored_picture.__name__, str(self._folder), str(self.port)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS)))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = json.loads(self.process.stdout.readline())["grpc"]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without warning: from now on the port refuses."""
        self.process.kill()
        self.process.wait()


def outages(settings: Settings) -> Outcome:
    """Kill the server, and make it hang, in turn; let it return each time."""
    runs, folder = settings.runs(3, 100), settings.logs / "store"
    values, seen = stored_picture.prepare(folder)
    parameters = {name.replace(".", "__"): value for name, value in values.items()}
    server = Server(folder)
    try:
        url = f"grpc://127.0.0.1:{server.port}/heisd"
        parameters |= {"retrieval__store": url, "retrieval__timeout_s": TIMEOUT_S}
        with World(settings.logs, **parameters) as world:
            robot = world.operator
            robot.seen = seen
            boot = "from heisd_ros.nodes.decoder_node import main; raise SystemExit(main())"
            command = [sys.executable, "-c", boot, "--ros-args"]
            world.run("decoder_node", [*command, "--params-file", str(world.parameters)])
            world.find_peers()
            robot.instruct(stored_picture.TASK)
            end = robot.stream(HZ)
            away, backs = _cycles(robot, server, runs)
            end()
            reports = [message for _, _, message in robot.reports]
            deaths, log = world.deaths(), world.log("decoder_node")
    finally:
        server.signal(signal.SIGCONT)
        server.kill()
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("spent on drafts meanwhile", _stage_s(away), TIMEOUT_S + ADDED_S),
            none_of(
                f"of {len(away)} steps meanwhile, without a decision",
                sum(not m.decided for m in away),
            ),
            Figure("decided without drafts, because of the store", sum(map(_fell_back, away))),
            Figure("server back to a draft from it, worst", max(backs), "s", high=BACK_S),
            none_of("decisions that failed", sum(m.reason == "decoder_failed" for m in reports)),
            none_of("exceptions in the log", log.count("Traceback")),
            none_of("processes that ended", deaths),
        ),
        f"Killed (the port refuses) and hanging in turn; a tiny model that decides; time-out "
        f"{1e3 * TIMEOUT_S:.0f} ms, then the server is left alone for "
        f"{RetrievalConfig().pause_s:.0f} s. Time on drafts: stage `{STAGE}` of the reports.",
    )


def _cycles(robot: Operator, server: Server, runs: int) -> tuple[list[DecodeReport], list[float]]:
    """Return the reports that came during outages, and seconds until drafts were back."""
    backs: list[float] = []
    away: list[DecodeReport] = []
    _need_draft(robot, 0.0)
    for run in range(runs):
        gone = robot.now()
        if run % 2:
            server.signal(signal.SIGSTOP)
        else:
            server.kill()
        need(wait_until(lambda t=gone: _away(robot, t), PATIENCE_S), "a decision without the store")
        pause(OUTAGE_S)
        away += [m for at, _, m in list(robot.reports) if at >= gone]
        if run % 2:
            server.signal(signal.SIGCONT)
        else:
            server.start()
        back = robot.now()
        backs.append(_need_draft(robot, back) - back)
    return away, backs


def _away(robot: Operator, since: float) -> list[DecodeReport]:
    return [m for at, _, m in list(robot.reports) if at >= since and _fell_back(m)]


def _fell_back(report: DecodeReport) -> bool:
    return report.kind == "ar" and report.reason.startswith("store_error")


def _drafted(robot: Operator, since: float) -> list[float]:
    return [
        at
        for at, _, m in list(robot.reports)
        if at >= since and m.kind == "retrieval" and not m.reason
    ]


def _need_draft(robot: Operator, since: float) -> float:
    """Return when the first decision arrived that was drafted from the store."""
    for _ in range(round(START_S / 5.0)):
        if wait_until(lambda: _drafted(robot, since), 5.0):
            break
        robot.instruct(stored_picture.TASK)  # a node that was not found yet has missed it
    need(bool(_drafted(robot, since)), "a draft from the store")
    return _drafted(robot, since)[0]


def _stage_s(reports: list[DecodeReport]) -> list[float]:
    stages = [dict(zip(m.stage, m.stage_ms, strict=True)) for m in reports]
    return [1e-3 * stage[STAGE] for stage in stages if STAGE in stage]


ROWS = (
    Row(
        "store_outage",
        "Demonstration server killed or hanging, and back",
        "the same step decides without it, at most its time-out + 10 ms later; drafts from it "
        "within 2 s",
        outages,
    ),
)
