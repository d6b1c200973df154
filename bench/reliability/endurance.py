"""Hours of two cameras: memory and errors of three processes."""

from __future__ import annotations

import math

import numpy as np

from bench.reliability.bring_up import NODES, resident_mb
from bench.reliability.outcome import Figure, Outcome, Row, Settings, none_of
from bench.reliability.world import World, pause

SAMPLE_S = 1.0
WARM_UP = 0.25
"""Share of the time that is not looked at."""


def soak(settings: Settings) -> Outcome:
    """Run on and on."""
    seconds = settings.runs(40, 3600)
    samples: dict[str, list[float]] = {node: [] for node in NODES}
    with World(settings.logs, cameras=True, size=(480, 640)) as world:
        robot = world.operator
        world.start_all(*NODES)
        robot.order()
        end = robot.stream(10.0)
        start = robot.wait_for_motion(0.0)
        while robot.now() - start < seconds:
            pause(SAMPLE_S)
            for node in NODES:
                samples[node].append(resident_mb(world.processes[node].pid))
        end()
        decided = sum(message.decided for _, _, message in robot.reports)
        deaths = world.deaths()
        errors = sum(
            line.startswith(("[ERROR]", "[FATAL]", "Traceback"))
            for node in NODES
            for line in world.log(node).splitlines()
        )
    slopes = [_slope_per_hour(values) for values in samples.values()]
    bound = 1.0 if settings.length == "full" else None
    return Outcome(
        f"{seconds} s",
        (
            Figure("growth of memory, worst process", max(slopes), "MB/h", high=bound),
            none_of("lines of errors", errors),
            none_of("processes that ended", deaths),
            Figure("decisions", decided, low=1, high=math.inf),
        ),
        "Pictures 2 x 640x480 at 10 Hz. A slope of less than an hour says little.",
    )


def _slope_per_hour(values: list[float]) -> float:
    kept = np.array(values[round(len(values) * WARM_UP) :])
    hours = np.arange(len(kept)) * SAMPLE_S / 3600.0
    return float(np.polyfit(hours, kept, 1)[0])


ROWS = (
    Row(
        "soak",
        "Two cameras at 10 Hz for an hour",
        "at most 1 MB/h more memory after warm-up, no error",
        soak,
    ),
)
