"""Simulated time that jumps or stops while the arm moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bench.reliability.outcome import Outcome, Row, Settings, milliseconds, none_of
from bench.reliability.world import LIFETIME_S, World, pause

TICK_S = 0.01
HZ = 10.0


class Ticker:
    """Publishes /clock in real time until it is closed; may jump or stand still."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000_000
        self.running = True
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, publish) -> None:
        """Call `publish` with the time, again and again."""

        def run() -> None:
            while not self._stop.wait(TICK_S):
                if self.running:
                    self.jump(TICK_S)
                    publish(self.now_ns)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def jump(self, by_s: float) -> None:
        """Set the time ahead, or back."""
        with self._lock:  # not lost in a tick
            self.now_ns += round(by_s * 1e9)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def jump_back(settings: Settings) -> Outcome:
    """A bag is looped: time goes ten seconds back, the cameras go on."""
    return _jumps(settings, -10.0, 0.05)


def jump_ahead(settings: Settings) -> Outcome:
    """Time goes ten seconds ahead, the cameras go on."""
    return _jumps(settings, 10.0, None)


@contextmanager
def _simulated_time(settings: Settings, ticker: Ticker) -> Iterator[World]:
    """Start a decoder that lives by the ticker's time, and tell it what to do."""
    realtime = {"simulation__clock": "realtime"}
    with World(settings.logs, time_ns=lambda: ticker.now_ns, **realtime) as world:
        ticker.begin(world.operator.publish_clock)
        try:
            world.start("decoder_node", "-p", "use_sim_time:=true")
            world.find_peers()
            world.operator.order()
            yield world
        finally:
            ticker.close()


def _jumps(settings: Settings, by_s: float, zero_s: float | None) -> Outcome:
    runs, zeros, resumes, ticker = settings.runs(5, 50), [], [], Ticker()
    with _simulated_time(settings, ticker) as world:
        robot = world.operator
        end = robot.stream(HZ)
        for _ in range(runs):
            robot.wait_for_motion(robot.now())
            pause(0.5)
            jumped = robot.now()
            ticker.jump(by_s)
            if zero_s is not None:
                zeros.append(robot.wait_for_zero(jumped) - jumped)
            pause(0.1)
            since = robot.now()
            resumes.append(robot.wait_for_motion(since) - since)
        end()
        deaths = world.deaths()
    zero = milliseconds("jump to first zero", zeros, zero_s) if zeros else []
    return Outcome(
        f"{runs} x",
        (
            *zero,
            *milliseconds("motion again after", resumes, 0.6),
            none_of("processes that ended", deaths),
        ),
    )


def stands_still(settings: Settings) -> Outcome:
    """/clock stops: the watchdog must not depend on it."""
    runs, zeros, moved, ticker = settings.runs(5, 50), [], 0, Ticker()
    with _simulated_time(settings, ticker) as world:
        robot = world.operator
        for _ in range(runs):
            end = robot.stream(HZ)
            since = robot.now()
            robot.wait_telling(lambda t=since: len(robot.moving(t)) > 10, "motion")
            ticker.running = False
            end()  # a simulator that stops shows no pictures either
            stopped = robot.shown
            zero = robot.wait_for_zero(stopped)
            zeros.append(zero - stopped)
            pause(0.5)
            moved += len(robot.moving(zero))
            ticker.running = True
        deaths = world.deaths()
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("last picture to first zero", zeros, LIFETIME_S + 0.05),
            none_of("commands that moved after it", moved),
            none_of("processes that ended", deaths),
        ),
    )


ROWS = (
    Row(
        "clock_back",
        "Simulated time jumps 10 s back during a motion",
        "zero within 50 ms, then motion again",
        jump_back,
    ),
    Row("clock_ahead", "Simulated time jumps 10 s ahead", "motion goes on or resumes", jump_ahead),
    Row(
        "clock_stops",
        "/clock and pictures stop during a motion",
        "zero within the lifetime + 50 ms, by a clock that does not stop",
        stands_still,
    ),
)
