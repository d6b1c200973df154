import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from ros_fakes import ScriptedPolicy, constant, result_of

from heisd_ros.command import Arming
from heisd_ros.config import HeisdConfig, replace
from heisd_ros.decode.pilot import Pilot, with_vision_time
from heisd_ros.types import Observation, Proprioception

SECOND = 1_000_000_000
MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # 0.01 m at 5 Hz: 0.05 m/s


class Time:
    """Both clocks, moved by hand."""

    def __init__(self):
        self.now = 100 * SECOND
        self.steady = 0

    def pass_s(self, seconds):
        self.now += round(seconds * SECOND)
        self.steady += round(seconds * SECOND)


def fail(observation, n):
    raise RuntimeError("out of memory")


def pilot_of(script, time, **overrides):
    config = replace(HeisdConfig(), **overrides)
    pilot = Pilot(
        ScriptedPolicy(script), config, now_ns=lambda: time.now, steady_ns=lambda: time.steady
    )
    pilot.instruct("go")
    return pilot


def observation(time, instruction="go", age_s=0.0):
    pose = Proprioception(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]), 0.5, time.now)
    return Observation((), pose, instruction, stamp_ns=time.now - round(age_s * SECOND))


def said(pilot):
    """The next command on the wire; it must not be silence."""
    command = pilot.next_command(0)
    assert command is not None
    return command


def speed(pilot):
    """Linear speed of the next command, zero for silence."""
    command = pilot.next_command(0)
    return 0.0 if command is None else float(np.linalg.norm(command.linear))


def test_a_decision_is_held_for_its_lifetime_and_then_ends_in_zero():
    time = Time()
    pilot = pilot_of(constant(MOVE), time)
    assert pilot.decide(observation(time)).moves
    time.pass_s(0.3)
    assert speed(pilot) == pytest.approx(0.05)
    time.pass_s(0.001)
    assert speed(pilot) == 0.0
    assert pilot.hold_reason == "stale"


def test_a_failing_policy_means_zero_at_once_and_never_the_last_action():
    time = Time()
    pilot = pilot_of(lambda o, n: fail(o, n) if n == 1 else result_of(MOVE), time)
    pilot.decide(observation(time))
    decision = pilot.decide(observation(time))
    assert not decision.moves
    assert decision.reason == "decoder_failed"
    assert speed(pilot) == 0.0
    pilot.decide(observation(time))
    assert speed(pilot) == pytest.approx(0.05)  # the step after the failure works
    assert pilot.counts["decoder_failed"] == 1


def test_three_failures_in_a_row_end_deciding_until_started_again():
    time = Time()
    pilot = pilot_of(lambda o, n: fail(o, n) if n < 3 else result_of(MOVE), time)
    for _ in range(3):
        pilot.decide(observation(time))
    assert pilot.stopped == "too_many_failures"
    assert not pilot.decide(observation(time)).moves
    pilot.start()
    assert pilot.decide(observation(time)).moves


def test_an_error_of_the_device_is_fatal():
    def script(observation, n):
        raise RuntimeError("CUDA error: device-side assert triggered")

    time = Time()
    pilot = pilot_of(script, time)
    pilot.decide(observation(time))
    assert "device-side assert" in pilot.fatal
    assert speed(pilot) == 0.0


def test_a_result_that_comes_too_late_is_dropped():
    time = Time()

    def slow(observation, n):
        time.pass_s(0.9)
        return result_of(MOVE)

    pilot = pilot_of(slow, time)
    decision = pilot.decide(observation(time))
    assert (decision.moves, decision.reason) == (False, "late_result")
    assert speed(pilot) == 0.0
    assert pilot.counts["late_result"] == 1


def test_motion_for_another_instruction_ends_at_once_and_late_decisions_for_it_are_dropped():
    time = Time()
    pilot = pilot_of(constant(MOVE), time)
    pilot.decide(observation(time))
    pilot.instruct("stop and wait")
    assert speed(pilot) == 0.0
    decision = pilot.decide(observation(time, "go"))
    assert not decision.moves
    assert "old_instruction" in decision.guard
    assert pilot.decide(observation(time, "stop and wait")).moves


def test_a_stop_holds_against_decisions_made_meanwhile():
    time = Time()
    pilot = pilot_of(constant(MOVE), time)
    pilot.decide(observation(time))
    pilot.stop()
    assert speed(pilot) == 0.0
    assert pilot.decide(observation(time)).reason == "inactive"
    assert speed(pilot) == 0.0
    pilot.start()
    assert pilot.decide(observation(time)).moves


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([math.nan, 0, 0, 0, 0, 0, 1], "non_finite"),
        ([math.inf, 0, 0, 0, 0, 0, 1], "non_finite"),
        ([0, 0, 0, 0, 0, 0, math.nan], "non_finite"),
        ([0] * 6, "wrong_length"),
        ([0] * 8, "wrong_length"),
    ],
)
def test_a_bad_action_is_refused_whole_and_the_gripper_stays(values, reason):
    time = Time()
    closing = [*MOVE[:6], 0.0]
    pilot = pilot_of(lambda o, n: result_of(closing if n == 0 else values), time)
    pilot.decide(observation(time))
    decision = pilot.decide(observation(time))
    assert (decision.moves, decision.reason) == (False, reason)
    assert speed(pilot) == 0.0
    assert said(pilot).gripper == 0.0


def test_too_fast_an_action_is_scaled_in_its_own_direction():
    time = Time()
    # 0.3 and 0.4 m at 5 Hz are 2.5 m/s; the limit is 0.25 m/s.
    pilot = pilot_of(constant([0.3, 0.4, 0, 0, 0, 0, 1]), time)
    decision = pilot.decide(observation(time))
    assert decision.moves
    assert "linear_limit" in decision.guard
    assert said(pilot).linear.tolist() == pytest.approx([0.15, 0.2, 0.0])


def test_a_flickering_gripper_changes_at_most_once():
    time = Time()
    pilot = pilot_of(
        lambda o, n: result_of([*MOVE[:6], float(n % 2 == 0)]), time, command__gripper_debounce=2
    )
    openings = []
    for _ in range(6):
        pilot.decide(observation(time))
        openings.append(said(pilot).gripper)
        time.pass_s(0.2)
    assert not any(a != b for a, b in pairwise(openings))
    assert openings[0] == 1.0


def test_slow_simulated_time_prolongs_a_command_in_steady_time():
    time = Time()
    config = HeisdConfig()
    pilot = Pilot(
        ScriptedPolicy(constant(MOVE)),
        config,
        now_ns=lambda: time.now,
        steady_ns=lambda: time.steady,
        pace=0.1,
    )
    pilot.instruct("go")
    pilot.decide(observation(time))
    time.steady += 2 * SECOND  # 0.2 s of the arm's time
    assert speed(pilot) > 0.0
    time.steady += 2 * SECOND
    assert speed(pilot) == 0.0


def test_end_of_episode_reaches_the_policy_and_ends_motion():
    time = Time()
    policy = ScriptedPolicy(constant(MOVE))
    pilot = Pilot(policy, HeisdConfig(), now_ns=lambda: time.now, steady_ns=lambda: time.steady)
    pilot.instruct("go")
    pilot.decide(observation(time))
    pilot.end_episode(True)
    assert policy.ended == [True]
    assert speed(pilot) == 0.0


def test_encoding_elsewhere_counts_as_vision_and_in_the_total():
    time = Time()
    pilot = pilot_of(constant(MOVE), time)
    decision = with_vision_time(pilot.decide(observation(time)), 12.0)
    assert decision.result.report.stage_ms == {"vision": 12.0, "total": 13.5}  # 1.5 by the fake
    failed = pilot_of(fail, time).decide(observation(time))
    assert with_vision_time(failed, 12.0) is failed


def test_a_decision_is_released_however_slow_the_process_is_while_the_arms_time_stands_still():
    time = Time()
    pilot = pilot_of(constant(MOVE), time)
    decision = pilot.decide(observation(time))
    time.steady += SECOND  # longer than a command lives
    assert pilot.next_command(time.now, decision).linear[0] == pytest.approx(0.05)
    time.now += SECOND
    assert pilot.next_command(time.now, decision).linear[0] == 0.0


@pytest.mark.parametrize(
    "end", [Pilot.stop, lambda p: p.instruct("other"), lambda p: p.flush("clock_back")]
)
def test_a_decision_is_not_released_after_motion_has_been_ended(end):
    time = Time()
    pilot = pilot_of(constant(MOVE), time)
    decision = pilot.decide(observation(time))
    end(pilot)
    released = pilot.next_command(time.now, decision)
    assert released.linear[0] == 0.0
    assert released.stamp_ns == time.now


def test_an_older_decision_is_not_released_in_place_of_the_newest():
    time = Time()
    pilot = pilot_of(lambda o, n: result_of([0.01 * (n + 1), *MOVE[1:]]), time)
    older = pilot.decide(observation(time))
    time.pass_s(0.2)
    pilot.decide(observation(time))
    assert pilot.next_command(time.now, older).linear[0] == pytest.approx(0.1)


def real_arm(time, script=None, **overrides):
    """A pilot of an arm that is not simulated."""
    config = replace(HeisdConfig(), **overrides)
    pilot = Pilot(
        ScriptedPolicy(script or constant(MOVE)),
        config,
        now_ns=lambda: time.now,
        steady_ns=lambda: time.steady,
        arming=Arming(config.arming, simulated=False),
    )
    pilot.instruct("go")
    return pilot


def test_a_real_arm_stands_still_until_armed_and_the_decision_shows_what_it_would_do():
    time = Time()
    pilot = real_arm(time)
    decision = pilot.decide(observation(time))
    assert (decision.moves, decision.reason, decision.guard) == (False, "dry_run", ("dry_run",))
    assert decision.wanted.linear == pytest.approx([0.05, 0.0, 0.0])
    assert speed(pilot) == 0.0
    assert pilot.hold_reason == "dry_run"
    assert pilot.arming.arm(time.steady) is None
    assert speed(pilot) == 0.0  # nothing decided in the dry run moves afterwards
    assert pilot.decide(observation(time)).moves
    assert speed(pilot) == pytest.approx(0.05)


def test_a_dry_run_is_silent_and_so_is_an_arm_at_rest_if_configured():
    time = Time()
    pilot = real_arm(time, command__rest="silence", command__rest_zeros=2)
    pilot.arming.arm(0)
    assert pilot.next_command(0) is None  # nothing has moved yet
    pilot.decide(observation(time))
    assert pilot.next_command(0) is not None
    time.pass_s(1.0)
    silent = [pilot.next_command(0) is None for _ in range(4)]
    assert silent == [False, False, True, True]
    pilot.stop()
    assert [pilot.next_command(0) is None for _ in range(3)] == [False, False, True]


def test_disarming_sends_the_zeros_and_then_leaves_the_arm_to_others():
    time = Time()
    pilot = real_arm(time, command__rest_zeros=3)  # rest: zeros
    pilot.arming.arm(0)
    pilot.decide(observation(time))
    pilot.arming.disarm()
    sent = [pilot.next_command(0) for _ in range(5)]
    assert [command is None for command in sent] == [False, False, False, True, True]
    assert not any(command.linear.any() for command in sent[:3])


def test_an_emergency_stop_ends_motion_at_the_next_command_and_waits_for_arming():
    time = Time()
    pilot = real_arm(time, arming__start="armed")
    decision = pilot.decide(observation(time))
    pilot.arming.estop(True, time.steady)
    assert not pilot.next_command(time.now, decision).linear.any()
    assert speed(pilot) == 0.0
    assert pilot.decide(observation(time)).reason == "estop"
    pilot.arming.estop(False, time.steady)
    assert not pilot.decide(observation(time)).moves
    pilot.arming.arm(time.steady)
    assert speed(pilot) == 0.0
    assert pilot.decide(observation(time)).moves


def test_a_released_dead_mans_switch_ends_motion_and_a_held_one_waits_for_a_decision():
    time = Time()
    pilot = real_arm(time, arming__start="armed", arming__deadman=True)
    pilot.arming.deadman(True, time.steady)
    pilot.decide(observation(time))
    time.pass_s(0.201)  # deadman_timeout_s is 0.2
    assert speed(pilot) == 0.0
    assert pilot.counts["deadman"] == 1
    pilot.next_command(0)
    assert pilot.counts["deadman"] == 1  # once, not once per command
    pilot.arming.deadman(True, time.steady)
    assert speed(pilot) == 0.0
    assert pilot.decide(observation(time)).moves


def test_after_a_stop_the_next_change_is_limited_from_standing_still():
    # 0.25 m/s wanted, 0.1 m/s per step: 0.1, 0.2; after the stop 0.1 again.
    time = Time()
    pilot = pilot_of(constant([0.05, 0, 0, 0, 0, 0, 1]), time, command__max_linear_step=0.1)
    speeds = []
    for step in range(3):
        if step == 2:
            pilot.stop()
            assert speed(pilot) == 0.0
            pilot.start()
        pilot.decide(observation(time))
        speeds.append(speed(pilot))
        time.pass_s(0.2)
    assert speeds == pytest.approx([0.1, 0.2, 0.1])


FORTH_AND_BACK = [[0.03, 0, 0, 0, 0, 0, 1], [-0.03, 0, 0, 0, 0, 0, 1]]  # 0.15 m/s at 5 Hz


@pytest.mark.parametrize(
    "end",
    [
        lambda pilot, time: time.pass_s(0.4),  # longer than a decision lives
        lambda pilot, time: pilot.flush("clock_back"),
        lambda pilot, time: (pilot.stop(), pilot.start()),
        lambda pilot, time: (pilot.instruct("other"), pilot.instruct("go")),
        lambda pilot, time: pilot.end_episode(True),
    ],
)
@pytest.mark.parametrize("said_zero", [False, True])
def test_motion_that_has_ended_counts_as_rest_only_if_somebody_got_round_to_saying_zero(
    end, said_zero
):
    time = Time()
    pilot = pilot_of(lambda o, n: result_of(FORTH_AND_BACK[n]), time, command__max_linear_step=0.2)
    pilot.decide(observation(time))
    assert speed(pilot) == pytest.approx(0.15)
    time.pass_s(0.2)
    end(pilot, time)
    if said_zero:
        assert speed(pilot) == 0.0
    pilot.decide(observation(time))
    # 0.2 m/s away from +0.15, or from rest.
    assert said(pilot).linear[0] == pytest.approx(-0.15 if said_zero else -0.05)


def test_a_decision_that_was_stopped_before_it_was_said_does_not_move_the_limit():
    time = Time()
    moves = [0.01, 0.03, -0.03]  # 0.05, 0.15, -0.15 m/s
    pilot = pilot_of(
        lambda o, n: result_of([moves[n], 0, 0, 0, 0, 0, 1]), time, command__max_linear_step=0.1
    )
    decision = pilot.decide(observation(time))
    assert pilot.next_command(time.now, decision).linear[0] == pytest.approx(0.05)
    time.pass_s(0.2)
    decision = pilot.decide(observation(time))
    pilot.stop()
    assert not pilot.next_command(time.now, decision).linear.any()
    pilot.start()
    time.pass_s(0.2)
    pilot.decide(observation(time))
    assert said(pilot).linear[0] == pytest.approx(-0.1)  # from the zero


@pytest.mark.parametrize("lockstep", [False, True])
def test_an_arm_in_lockstep_does_not_see_the_zeros_of_a_slow_machine(lockstep):
    time = Time()
    config = replace(HeisdConfig(), command__max_linear_step=0.1)
    pilot = Pilot(
        ScriptedPolicy(constant([0.05, 0, 0, 0, 0, 0, 1])),
        config,
        now_ns=lambda: time.now,
        steady_ns=lambda: time.steady,
        lockstep=lockstep,
    )
    pilot.instruct("go")
    speeds = []
    for _ in range(3):
        decision = pilot.decide(observation(time))
        speeds.append(float(pilot.next_command(time.now, decision).linear[0]))
        time.steady += SECOND  # the arm's time stands still meanwhile
        assert speed(pilot) == 0.0
        time.now += SECOND // 5
    # 0.1 m/s per step, from the last decision or from the zero after it.
    assert speeds == pytest.approx([0.1, 0.2, 0.25] if lockstep else [0.1, 0.1, 0.1])


def test_a_picture_that_arrived_long_ago_decides_nothing_however_new_its_stamp():
    time = Time()
    time.steady = 10 * SECOND
    pilot = pilot_of(constant(MOVE), time)
    fresh = dataclasses.replace(observation(time), arrived_ns=time.steady - SECOND // 2)
    assert pilot.decide(fresh).moves  # image_timeout_s is 0.5
    old = dataclasses.replace(observation(time), arrived_ns=time.steady - SECOND // 2 - 1)
    decision = pilot.decide(old)
    assert (decision.moves, decision.reason) == (False, "stale_arrival")


def test_a_new_instruction_forgets_half_a_gripper_decision():
    time = Time()
    values = [1.0, 0.0, 0.0]  # open; then one vote for closing on each side of the change
    pilot = pilot_of(
        lambda o, n: result_of([0.0] * 6 + [values[n]]), time, command__gripper_debounce=2
    )
    pilot.decide(observation(time))
    assert pilot.decide(observation(time)).command.gripper == 1.0
    pilot.instruct("other")
    # The first decision of a task is taken at once: it is the new task's own.
    assert pilot.decide(observation(time, "other")).command.gripper == 0.0


def test_a_pose_in_another_frame_moves_nothing():
    time = Time()
    seen = observation(time)
    pose = dataclasses.replace(seen.proprioception, frame_id="map")
    decision = pilot_of(constant(MOVE), time).decide(dataclasses.replace(seen, proprioception=pose))
    assert (decision.moves, decision.reason) == (False, "wrong_pose_frame")
