import math
import threading
import time
from itertools import pairwise

import pytest
from geometry_msgs.msg import WrenchStamped
from rclpy.parameter import Parameter
from ros.robot import Robot, speed_of
from ros_fakes import ScriptedPolicy, constant, result_of, wait_until
from std_srvs.srv import Trigger

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes.decoder_node import DecoderNode

MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # 0.05 m/s at 5 Hz
SECOND = 1_000_000_000
CONFIG = replace(
    HeisdConfig(),
    command__lifetime_s=0.3,
    command__image_timeout_s=0.3,
    arming__start="armed",
)


@pytest.fixture
def make(context, spin):
    """Return decoder and robot that have found each other."""

    def build(script, config=CONFIG, *, sim_time=False, time_ns=time.time_ns):
        policy = ScriptedPolicy(script)
        overrides = [Parameter("use_sim_time", value=sim_time)]
        decoder = DecoderNode(
            config=config, policy=policy, context=context, parameter_overrides=overrides
        )
        robot = Robot(context, time_ns=time_ns)
        spin(decoder)
        spin(robot)
        robot.find_peers()
        return decoder, robot, policy

    return build


def test_a_picture_becomes_one_decision_twist_gripper_and_report_with_one_stamp(make):
    _, robot, policy = make(constant(MOVE))
    robot.instruct("pick up the cup")
    robot.publish_picture(stamp := robot.time_ns())
    assert wait_until(lambda: robot.reports)
    report = robot.reports[0][2]
    assert report.decided
    assert report.instruction == "pick up the cup"
    assert report.image_stamp.sec * SECOND + report.image_stamp.nanosec == stamp
    key = (report.header.stamp.sec, report.header.stamp.nanosec)

    def with_stamp(kept):
        return [m for _, _, m in kept if (m.header.stamp.sec, m.header.stamp.nanosec) == key]

    assert wait_until(lambda: with_stamp(robot.twists) and with_stamp(robot.grippers))
    (twist,) = with_stamp(robot.twists)
    assert speed_of(twist) == pytest.approx(0.05)
    assert twist.header.frame_id == "base"
    assert [m.opening for m in with_stamp(robot.grippers)] == [1.0]
    assert policy.observations[0].proprioception.gripper_opening == pytest.approx(0.5)


def test_without_instruction_nothing_moves_and_diagnostics_say_why(make):
    _, robot, _ = make(constant(MOVE))
    robot.publish_picture()
    assert wait_until(lambda: any("no_instruction" in t for t in robot.diagnosis("decisions")))
    assert not robot.moving()
    assert robot.zeros()


def test_camera_silence_ends_motion_within_the_lifetime_and_motion_resumes(make, jitter):
    _, robot, _ = make(constant(MOVE))
    robot.instruct()
    end = robot.stream(10.0)
    assert wait_until(robot.moving)
    end()
    silent = time.monotonic()
    assert wait_until(lambda: robot.zeros(silent))
    first_zero = robot.zeros(silent)[0]
    # Lifetime, one command period, and twice what the machine needs to wake a thread.
    assert first_zero - silent <= 0.3 + 0.05 + 2 * jitter.worst_s
    seen = len(robot.twists)
    assert wait_until(lambda: len(robot.twists) > seen + 20)  # 0.4 s of zeros
    assert not robot.moving(first_zero)
    resumed = time.monotonic()
    end = robot.stream(10.0)
    assert wait_until(lambda: robot.moving(resumed))
    end()
    assert robot.moving(resumed)[0] - resumed <= 0.2 + 0.05 + 3 * jitter.worst_s


def test_commands_come_without_gaps_freshly_stamped_and_in_the_frame(make, jitter):
    _, robot, _ = make(constant(MOVE))
    robot.instruct()
    end = robot.stream(5.0)
    assert wait_until(robot.moving)
    start = time.monotonic()
    assert wait_until(lambda: time.monotonic() - start > 1.5, 5.0)
    end()
    window = [entry for entry in robot.twists if start <= entry[0] <= start + 1.5]
    gaps = [b[0] - a[0] for a, b in pairwise(window)]
    late_s = 2 * jitter.worst_s
    assert max(gaps) < 0.08 + late_s
    for _, received_ns, message in window:
        stamp_ns = message.header.stamp.sec * SECOND + message.header.stamp.nanosec
        assert received_ns - stamp_ns >= -1_000_000  # never in the future
        assert received_ns - stamp_ns < 20_000_000 + late_s * SECOND
        assert message.header.frame_id == "base"


def test_a_decision_that_never_returns_means_zero_an_error_and_a_stop_that_still_answers(
    make, jitter
):
    forever = threading.Event()

    def script(observation, n):
        if n == 1:
            forever.wait(30.0)
        return result_of(MOVE)

    _, robot, _ = make(script)
    robot.instruct()
    end = robot.stream(10.0)
    assert wait_until(robot.moving)
    assert wait_until(lambda: "decision_blocked" in robot.diagnosis("decisions"))
    blocked = time.monotonic()
    assert wait_until(lambda: robot.zeros(blocked))
    assert not robot.moving(blocked)
    client = robot.create_client(Trigger, "decoder_node/stop")
    assert client.wait_for_service(5.0)
    asked = time.monotonic()
    answer = client.call_async(Trigger.Request())
    assert wait_until(answer.done, 2.0)
    assert answer.result().success
    assert time.monotonic() - asked < 0.5 + 4 * jitter.worst_s
    forever.set()
    end()


def test_failing_decisions_are_reported_and_end_motion(make):
    def script(observation, n):
        if n == 1:
            raise RuntimeError("out of memory")
        return result_of(MOVE)

    _, robot, _ = make(script)
    robot.instruct()
    robot.publish_picture()
    assert wait_until(lambda: len(robot.reports) == 1)
    robot.publish_picture()
    assert wait_until(lambda: len(robot.reports) == 2)
    failed_at, _, report = robot.reports[1]
    assert (report.decided, report.reason) == (False, "decoder_failed")
    assert wait_until(lambda: robot.zeros(failed_at))
    robot.publish_picture()
    assert wait_until(lambda: len(robot.reports) == 3)
    assert robot.reports[2][2].decided


def test_a_new_instruction_ends_motion_before_the_next_picture(make, jitter):
    _, robot, policy = make(constant(MOVE))
    robot.instruct("one")
    robot.publish_picture()
    assert wait_until(robot.moving)
    robot.instruct("two")
    changed = time.monotonic()
    assert wait_until(lambda: robot.zeros(changed))
    assert robot.zeros(changed)[0] - changed < 0.1 + 3 * jitter.worst_s  # not the lifetime, 0.3 s
    robot.publish_picture()
    assert wait_until(lambda: len(policy.observations) == 2)
    assert policy.observations[1].instruction == "two"


def test_poses_that_are_not_numbers_are_refused_and_good_ones_still_decide(make):
    decoder, robot, _ = make(constant(MOVE))
    robot.instruct()
    robot.publish_pose(robot.time_ns(), x=math.nan)
    assert wait_until(lambda: decoder.pilot.counts["bad_pose"] == 1)
    robot.publish_picture()
    assert wait_until(lambda: robot.reports)
    assert robot.reports[0][2].decided


def test_the_newest_force_reaches_the_policy_and_a_bad_one_is_refused(make):
    decoder, robot, policy = make(constant(MOVE), replace(CONFIG, verify__tighten_max_force=5.0))
    wrenches = robot.create_publisher(WrenchStamped, "wrench", 10)
    assert wait_until(wrenches.get_subscription_count)
    robot.instruct()

    def decided_with(force, *measured):
        def look():
            for z in measured:
                message = WrenchStamped()
                message.header.stamp = convert.to_stamp(robot.time_ns())
                message.wrench.force.x, message.wrench.force.z = 3.0, z
                wrenches.publish(message)
            robot.publish_picture()
            return bool(policy.observations) and policy.observations[-1].force == force

        return wait_until(look, 5.0)

    assert decided_with(None)
    assert decoder.pilot.counts["no_wrench"] >= 1
    assert decided_with(5.0, -4.0)
    assert decoder.pilot.counts["bad_wrench"] == 0
    assert decided_with(None, math.nan)
    assert decoder.pilot.counts["bad_wrench"] >= 1


def test_closing_leaves_zero_as_the_last_command(make):
    decoder, robot, _ = make(constant(MOVE))
    robot.instruct()
    end = robot.stream(20.0)
    assert wait_until(robot.moving)
    decoder.rest()
    end()
    seen = -1
    while seen != len(robot.twists):  # until nothing more is on the way
        seen = len(robot.twists)
        wait_until(lambda seen=seen: len(robot.twists) > seen, 0.2)
    assert speed_of(robot.twists[-1][2]) == 0.0


def test_simulated_time_without_a_clock_means_no_motion(make):
    now = [0]
    _, robot, policy = make(constant(MOVE), sim_time=True, time_ns=lambda: now[0])
    robot.instruct()
    robot.publish_picture(0)
    assert wait_until(lambda: any("no_clock" in t for t in robot.diagnosis("decisions")), 5)
    assert not policy.observations
    assert not robot.moving()
    now[0] = 100 * SECOND
    robot.publish_clock(now[0])
    robot.publish_picture()
    assert wait_until(lambda: policy.observations, 5.0)


def test_a_clock_that_goes_back_ends_motion_and_decisions_go_on_from_there(make):
    now = [105 * SECOND]
    decoder, robot, policy = make(constant(MOVE), sim_time=True, time_ns=lambda: now[0])
    robot.publish_clock(now[0])
    robot.instruct()
    robot.publish_picture()
    assert wait_until(lambda: len(policy.observations) == 1)
    now[0] = 100 * SECOND
    robot.publish_clock(now[0])
    assert wait_until(lambda: decoder.pilot.counts["clock_back"] == 1)
    robot.publish_picture()
    assert wait_until(lambda: len(policy.observations) == 2)
    assert policy.observations[1].proprioception.stamp_ns == 100 * SECOND
