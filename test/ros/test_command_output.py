"""What the wire shows when the publishing thread is starved, and when a motion is ended."""

import threading
import time

import numpy as np
import pytest
from heisd_ros.msg import EpisodeStatus
from ros.robot import Robot, speed_of
from ros_fakes import ScriptedPolicy, result_of, wait_until
from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.types import Observation, Proprioception

CONFIG = replace(
    HeisdConfig(),
    command__lifetime_s=0.1,
    command__image_timeout_s=10.0,
    command__max_linear_step=0.15,
    command__rate_margin=100.0,
    arming__start="armed",
)
FORTH_AND_BACK = [0.02, -0.02]  # 0.1 and -0.1 m/s at 5 Hz


def observation():
    pose = Proprioception(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]), 0.5, time.time_ns())
    return Observation((), pose, "go", stamp_ns=time.time_ns())


@pytest.fixture
def make(context, spin):
    """Return a decoder, and a robot that hears it; only the robot is served by a thread."""

    def build(*, served=False):
        policy = ScriptedPolicy(lambda o, n: result_of([FORTH_AND_BACK[n % 2], *[0.0] * 5, 1.0]))
        decoder = DecoderNode(config=CONFIG, policy=policy, context=context)
        if served:
            spin(decoder)
        else:
            assert decoder.bring_up()
        robot = spin(Robot(context))
        robot.find_peers()
        return decoder, robot

    decoders = []
    yield lambda **options: decoders.append(build(**options)) or decoders[-1]
    for decoder, _ in decoders:
        if decoder.executor is None:
            decoder.close()
            decoder.destroy_node()


def test_a_starved_decoder_never_changes_the_velocity_by_more_than_the_limit(make):
    decoder, robot = make(served=True)
    robot.instruct("go")
    assert wait_until(lambda: decoder._loop.assembler.instruction == "go")
    stalled, go_on = threading.Event(), threading.Event()

    def stall():
        stalled.set()
        go_on.wait(30.0)

    decoder.executor.create_task(stall)
    assert stalled.wait(10.0)  # from here on only the deciding thread runs: no hold, no zero
    for count in (1, 2):
        decoder._loop._worker.submit(lambda: decoder._loop._act(observation()))
        assert wait_until(lambda n=count: len(robot.reports) == n)
        go_on.wait(0.15)  # longer than a decision lives
    go_on.set()
    assert wait_until(lambda: robot.zeros(robot.reports[-1][0]))
    moving = [m.twist.linear.x for _, _, m in robot.twists if speed_of(m) > 0.0]
    # At most 0.15 from one to the next: -0.1 is too far from +0.1, which is still on the wire.
    assert sorted(set(moving), reverse=True) == pytest.approx([0.1, -0.05])
    assert "linear_step" in robot.reports[-1][2].guard


ENDS = {
    "instruction": lambda decoder: decoder._on_instruction(String(data="other")),
    "episode": lambda decoder: decoder._on_episode_status(EpisodeStatus(done=True)),
    "task": lambda decoder: decoder._on_task_end("canceled"),
    "stop": lambda decoder: decoder._on_stop(Trigger.Request(), Trigger.Response()),
    "estop": lambda decoder: decoder._stops._estop(Bool(data=True)),
    "clock": lambda decoder: decoder._loop.after_time_step(True),
    "rest": lambda decoder: decoder.rest(),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_motion_is_said_at_once_without_waiting_for_the_next_tick(make, end):
    decoder, robot = make()
    decoder._on_instruction(String(data="go"))
    decoder._loop._act(observation())
    assert wait_until(robot.moving)
    ENDS[end](decoder)
    assert wait_until(lambda: speed_of(robot.twists[-1][2]) == 0.0)


def test_neither_a_decision_nor_its_report_holds_up_a_stop(make):
    decoder, robot = make()
    decoder._on_instruction(String(data="go"))
    loop, go_on, reached = decoder._loop, threading.Event(), threading.Event()

    class Stuck:
        def publish(self, message):
            reached.set()
            go_on.wait(30.0)

    loop.output._report = Stuck()
    loop._worker.submit(lambda: loop._act(observation()))
    assert reached.wait(10.0)
    assert wait_until(robot.moving)
    ENDS["stop"](decoder)
    assert not go_on.is_set()
    assert wait_until(lambda: speed_of(robot.twists[-1][2]) == 0.0)
    go_on.set()
