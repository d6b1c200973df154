"""Cameras that stop: perception and decoder are processes, pictures and commands go over DDS."""

from __future__ import annotations

from bench.reliability.outcome import Figure, Outcome, Row, Settings, milliseconds, none_of
from bench.reliability.world import CAMERAS, IMAGE_TIMEOUT_S, LIFETIME_S, World, pause

HZ = 10.0
HELD_S = 0.6
"""How long the zeros are watched."""


def one_camera(settings: Settings) -> Outcome:
    """Only the wrist camera stops."""
    return _loss(settings, ("wrist",))


def all_cameras(settings: Settings) -> Outcome:
    """All cameras stop."""
    return _loss(settings, CAMERAS)


def _loss(settings: Settings, cameras: tuple[str, ...]) -> Outcome:
    stops, resumes, moved, commands = [], [], 0, 0
    runs = settings.runs(5, 50)
    with World(settings.logs, cameras=True) as world:
        robot = world.operator
        world.start_all("perception_node", "decoder_node")
        robot.order()
        end = robot.stream(HZ)
        for _ in range(runs):
            robot.wait_for_motion(robot.shown)
            pause(0.5)
            before = robot.shown
            robot.quiet.update(cameras)
            while robot.shown == before:  # the last full set is the one that was on its way
                pause(0.001)
            zero = robot.wait_for_zero(before)
            stops.append(zero - before)
            pause(HELD_S)
            moved += len(robot.moving(zero))
            commands += len(robot.zeros(zero)) + len(robot.moving(zero))
            robot.quiet.clear()
            before = robot.shown
            while robot.shown == before:
                pause(0.001)
            shown = robot.shown
            resumes.append(robot.wait_for_motion(shown) - shown)
        end()
        deaths = world.deaths()
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("last picture to first zero", stops, IMAGE_TIMEOUT_S + 0.05),
            none_of(f"commands that moved in the {HELD_S} s after it, of {commands}", moved),
            Figure("resumed after, worst", 1e3 * max(resumes), "ms", high=2e3 / HZ),
            none_of("processes that ended", deaths),
        ),
        f"Pictures at {HZ:.0f} Hz; a command lives {LIFETIME_S} s, a picture {IMAGE_TIMEOUT_S} s.",
    )


def steady(settings: Settings) -> Outcome:
    """Cameras that do not stop: no stop either."""
    seconds = settings.runs(20, 600)
    with World(settings.logs, cameras=True) as world:
        robot = world.operator
        world.start_all("perception_node", "decoder_node")
        robot.order()
        end = robot.stream(HZ)
        start = robot.wait_for_motion(0.0)
        pause(seconds)
        stops = len(robot.zeros(start))
        commands = len(robot.moving(start))
        end()
        deaths = world.deaths()
    return Outcome(
        f"{seconds} s",
        (
            none_of("zero commands", stops),
            Figure("commands that moved", commands),
            none_of("processes that ended", deaths),
        ),
        f"Pictures at {HZ:.0f} Hz, a command lives {LIFETIME_S} s.",
    )


ROWS = (
    Row(
        "cameras",
        "All cameras stop",
        "zero within the image time-out + 50 ms, zeros while it lasts, motion again within two "
        "picture periods",
        all_cameras,
    ),
    Row("one_camera", "One of two cameras stops", "as above", one_camera),
    Row("false_stops", "Cameras run on", "no stop without a cause", steady),
)
