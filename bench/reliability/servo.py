"""A decoder killed behind the Servo adapter: what a consumer with MoveIt Servo's rules receives."""

from __future__ import annotations

import os
import sys

import pytest
import ros_interfaces
from ros_fakes import wait_until

from bench.reliability.outcome import CannotRunError, Outcome, Row, Settings, milliseconds, none_of
from bench.reliability.world import START_S, TESTS, World, need, pause


def killed_behind_adapter(settings: Settings) -> Outcome:
    """Kill the decoder in a motion; the adapter must say zeros to Servo."""
    try:
        ros_interfaces.need("moveit_msgs")
    except pytest.skip.Exception as error:
        raise CannotRunError(f"{error}.") from None
    from geometry_msgs.msg import TwistStamped
    from ros.robot import speed_of

    runs, stops, moved = settings.runs(3, 50), [], 0
    with World(settings.logs) as world:
        robot = world.operator
        received: list[tuple[float, TwistStamped]] = []
        topic = "servo_node/delta_twist_cmds"
        robot.create_subscription(
            TwistStamped, topic, lambda m: received.append((robot.now(), m)), 50
        )
        main = "from heisd_ros.nodes.servo_adapter_node import main; raise SystemExit(main())"
        world.run("servo_adapter_node", [sys.executable, "-c", main])
        test = os.fspath(TESTS / "ros" / "fake_servo.py")
        world.run("fake_servo", [sys.executable, test])
        world.start_all("decoder_node")
        end = robot.stream(20.0)

        def since(at: float, moving: bool) -> list[float]:
            return [t for t, m in list(received) if t >= at and (speed_of(m) > 0) == moving]

        for run in range(runs):
            asked = robot.order(run=run)
            need(wait_until(lambda t=asked: since(t, moving=True), START_S), "motion at Servo")
            pause(0.3)
            killed = world.kill("decoder_node")
            need(wait_until(lambda t=killed: since(t, moving=False), START_S), "zeros")
            zero = since(killed, moving=False)[0]
            stops.append(zero - killed)
            pause(0.5)
            moved += len(since(zero, moving=True))
            started = robot.now()
            world.start("decoder_node")
            robot.wait_for_zero(started)
            pause(1.0)
        end()
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("kill to first zero at Servo", stops, 0.15),
            none_of("commands that moved after it", moved),
        ),
        "Servo is a stand-in with its rules for twists, not MoveIt.",
    )


def real_moveit(settings: Settings) -> Outcome:  # noqa: ARG001
    """An arm under MoveIt Servo itself."""
    raise CannotRunError("MoveIt is not installable from pip; nobody has run this yet.")


ROWS = (
    Row(
        "kill_behind_adapter",
        "Decoder killed behind the Servo adapter",
        "zeros at Servo within its time-out of 0.1 s + 50 ms",
        killed_behind_adapter,
    ),
    Row("real_moveit", "The same with MoveIt Servo itself", "as above", real_moveit),
)
