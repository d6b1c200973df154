import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from heisd_ros.command import CommandGuard, CommandHold, GuardReason, to_command, zero_command
from heisd_ros.config import CommandConfig
from heisd_ros.errors import ConfigError

SECOND = 1_000_000_000
NOW = 100 * SECOND
CONFIG = CommandConfig(
    frame_id="base", max_linear=0.25, max_angular=0.8, max_linear_step=0.25, max_angular_step=0.8
)


def command(linear=(0.1, 0.0, 0.0), angular=(0.0, 0.0, 0.2), gripper=0.0, now_ns=NOW, **changes):
    made = to_command([0.0] * 7, 5.0, "base", stamp_ns=now_ns, observed_ns=now_ns - 50_000_000)
    return dataclasses.replace(
        made,
        linear=np.array(linear, dtype=float),
        angular=np.array(angular, dtype=float),
        gripper=gripper,
        **changes,
    )


def assert_is_zero(result, gripper):
    assert not result.passed
    assert not result.command.linear.any()
    assert not result.command.angular.any()
    assert result.command.gripper == gripper
    assert result.command.frame_id == "base"
    assert result.command.stamp_ns == NOW


def test_a_good_command_passes_unchanged():
    wanted = command()
    result = CommandGuard(CONFIG).check(wanted, NOW)
    assert result.passed
    assert result.reasons == ()
    assert (result.command.linear == wanted.linear).all()
    assert (result.command.angular == wanted.angular).all()
    assert result.command.observed_ns == wanted.observed_ns


def test_standing_still_passes():
    assert CommandGuard(CONFIG).check(command((0, 0, 0), (0, 0, 0)), NOW).passed


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", range(7))
def test_one_bad_value_stops_everything_and_leaves_the_gripper(place, bad):
    guard = CommandGuard(CONFIG, gripper=1.0)
    values = [0.01] * 7
    values[place] = bad
    result = guard.check_action(values, NOW, observed_ns=NOW)
    assert_is_zero(result, gripper=1.0)
    assert result.reasons == (GuardReason.NON_FINITE,)
    assert guard.counts == {GuardReason.NON_FINITE: 1}


@pytest.mark.parametrize("size", [0, 6, 8])
def test_wrong_number_of_values_is_refused_with_a_reason(size):
    result = CommandGuard(CONFIG).check_action([0.0] * size, NOW, observed_ns=NOW)
    assert_is_zero(result, gripper=1.0)
    assert result.reasons == (GuardReason.WRONG_LENGTH,)


def test_a_twist_of_the_wrong_shape_is_refused():
    wrong = dataclasses.replace(command(), linear=np.zeros(2))
    assert CommandGuard(CONFIG).check(wrong, NOW).reasons == (GuardReason.WRONG_LENGTH,)


def test_too_fast_is_scaled_to_the_limit_with_its_direction():
    guard = CommandGuard(CONFIG)
    result = guard.check(command(linear=(3.0, 0.0, 4.0), angular=(0.0, 8.0, 0.0)), NOW)
    assert result.passed
    assert result.reasons == (GuardReason.LINEAR_LIMIT, GuardReason.ANGULAR_LIMIT)
    assert result.command.linear == pytest.approx([0.15, 0.0, 0.2])
    assert result.command.angular == pytest.approx([0.0, 0.8, 0.0])


def test_ten_times_the_step_limit_is_scaled_with_its_direction():
    config = dataclasses.replace(CONFIG, max_linear=10.0, max_linear_step=0.05)
    result = CommandGuard(config).check(command(linear=(0.3, 0.4, 0.0)), NOW)
    assert result.reasons == (GuardReason.LINEAR_STEP,)
    assert result.command.linear == pytest.approx([0.03, 0.04, 0.0])


def test_1e30_is_limited_not_refused():
    result = CommandGuard(CONFIG).check_action([1e30] + [0.0] * 6, NOW, observed_ns=NOW)
    assert result.passed
    assert result.command.linear == pytest.approx([0.25, 0.0, 0.0])


def sent(guard, now_ns=NOW, **fields):
    """Check a command and publish what is left of it."""
    result = guard.check(command(now_ns=now_ns, **fields), now_ns)
    guard.sent(result.command, now_ns)
    return result


def zero_is_sent(guard, now_ns):
    guard.sent(zero_command("base", 1.0, stamp_ns=now_ns), now_ns)


def test_change_is_measured_from_the_last_command_on_the_wire():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.2, 0.0, 0.0))
    later = NOW + SECOND // 5
    result = sent(guard, later, linear=(-0.2, 0.0, 0.0))
    assert result.reasons == (GuardReason.LINEAR_STEP,)
    # 0.25 away from +0.2 at most
    assert result.command.linear == pytest.approx([-0.05, 0.0, 0.0])


def test_a_decision_that_never_left_limits_nothing():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.2, 0.0, 0.0))
    guard.check(command(linear=(0.0, 0.0, 0.0)), NOW)  # decided, and stopped before it was sent
    later = NOW + SECOND // 5
    result = guard.check(command(linear=(-0.2, 0.0, 0.0), now_ns=later), later)
    assert result.command.linear == pytest.approx([-0.05, 0.0, 0.0])


def test_without_a_zero_on_the_wire_the_arm_is_not_taken_for_standing_however_old_the_decision():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.2, 0.0, 0.0))
    later = NOW + SECOND // 5 * 2  # longer than the decision lives, and nobody has said zero
    result = sent(guard, later, linear=(-0.2, 0.0, 0.0))
    assert result.reasons == (GuardReason.LINEAR_STEP,)
    assert result.command.linear == pytest.approx([-0.05, 0.0, 0.0])


def test_after_a_zero_on_the_wire_the_change_is_measured_from_zero():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.2, 0.0, 0.0))
    later = NOW + SECOND // 5 * 2
    zero_is_sent(guard, later)
    assert sent(guard, later, linear=(-0.2, 0.0, 0.0)).reasons == ()


def test_a_refusal_is_a_rest_only_once_its_zero_has_been_sent_and_the_gripper_is_kept():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.2, 0.0, 0.0), gripper=0.4)
    refused = guard.check(command(linear=(np.nan, 0.0, 0.0), gripper=1.0), NOW)
    assert_is_zero(refused, gripper=0.4)
    later = NOW + SECOND // 5
    reversal = command(linear=(-0.2, 0.0, 0.0), now_ns=later)
    assert guard.check(reversal, later).reasons == (GuardReason.LINEAR_STEP,)
    guard.sent(refused.command, later)
    assert guard.check(reversal, later).reasons == ()


def test_after_a_silence_the_velocity_is_near_rest_too_because_the_arm_may_have_stopped_itself():
    config = dataclasses.replace(CONFIG, max_linear_step=0.1)
    guard = CommandGuard(config)
    for step, wanted in enumerate([0.1, 0.2, 0.2]):
        now_ns = NOW + step * SECOND // 5
        assert sent(guard, now_ns, linear=(wanted, 0.0, 0.0)).command.linear[0] == wanted
    late = now_ns + SECOND  # nothing was sent for a second; 0.25 is wanted
    result = sent(guard, late, linear=(0.25, 0.0, 0.0))
    # 0.1 from rest, and that is 0.1 from 0.2.
    assert result.reasons == (GuardReason.LINEAR_STEP,)
    assert result.command.linear == pytest.approx([0.1, 0.0, 0.0])


def test_after_a_silence_the_distance_from_the_last_command_wins():
    config = dataclasses.replace(CONFIG, max_linear_step=0.1)
    guard = CommandGuard(config)
    for step, wanted in enumerate([0.1, 0.2, 0.25]):
        now_ns = NOW + step * SECOND // 5
        sent(guard, now_ns, linear=(wanted, 0.0, 0.0))
    result = sent(guard, now_ns + SECOND, linear=(0.25, 0.0, 0.0))
    assert result.command.linear == pytest.approx([0.15, 0.0, 0.0])  # 0.25 - 0.1 > 0.1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"frame_id": ""}, GuardReason.EMPTY_FRAME),
        ({"frame_id": "tool0"}, GuardReason.WRONG_FRAME),
        ({"observed_ns": NOW - SECOND}, GuardReason.STALE_IMAGE),
        ({"observed_ns": 0}, GuardReason.STALE_IMAGE),
        ({"stamp_ns": NOW + 1}, GuardReason.FUTURE_STAMP),
        ({"observed_ns": NOW + SECOND}, GuardReason.FUTURE_STAMP),
        ({"stamp_ns": NOW - SECOND}, GuardReason.STALE_COMMAND),
        ({"instruction": "open the drawer"}, GuardReason.OLD_INSTRUCTION),
    ],
)
def test_what_does_not_belong_here_and_now_is_refused(changes, reason):
    guard = CommandGuard(CONFIG)
    wanted = dataclasses.replace(command(instruction="lift"), **changes)
    result = guard.check(wanted, NOW, instruction="lift")
    assert_is_zero(result, gripper=1.0)
    assert result.reasons == (reason,)
    assert guard.counts[reason] == 1


def test_ages_at_the_limit_pass():
    limit_ns = int(CONFIG.image_timeout_s * SECOND)
    wanted = dataclasses.replace(command(), observed_ns=NOW - limit_ns)
    assert CommandGuard(CONFIG).check(wanted, NOW).passed


def test_all_faults_are_reported():
    wanted = dataclasses.replace(command(linear=(np.inf, 0, 0)), frame_id="", observed_ns=0)
    reasons = CommandGuard(CONFIG).check(wanted, NOW).reasons
    assert set(reasons) == {
        GuardReason.NON_FINITE,
        GuardReason.EMPTY_FRAME,
        GuardReason.STALE_IMAGE,
    }


def test_the_workspace_stops_only_the_outward_component():
    config = dataclasses.replace(
        CONFIG, workspace_low=(-1.0, -1.0, 0.0), workspace_high=(1.0, 1.0, 1.0)
    )
    guard = CommandGuard(config)
    result = guard.check(command(linear=(0.1, 0.0, -0.1)), NOW, position=[0.0, 0.0, 0.0])
    assert result.passed
    assert result.reasons == (GuardReason.OUTSIDE_WORKSPACE,)
    assert result.command.linear.tolist() == [0.1, 0.0, 0.0]


def test_an_unknown_position_is_refused():
    result = CommandGuard(CONFIG).check(command(), NOW, position=[0.0, np.nan, 0.0])
    assert result.reasons == (GuardReason.NON_FINITE,)


def test_a_gripper_beyond_its_range_is_clipped_and_counted():
    result = CommandGuard(CONFIG).check(command(gripper=1.5), NOW)
    assert result.command.gripper == 1.0
    assert result.reasons == (GuardReason.GRIPPER_LIMIT,)


def test_a_failed_decision_gives_a_counted_zero():
    guard = CommandGuard(CONFIG, gripper=0.3)
    assert_is_zero(guard.refuse(GuardReason.DECODER_FAILED, NOW), gripper=0.3)
    assert guard.counts == {GuardReason.DECODER_FAILED: 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"workspace_low": (-1.0, -1.0)},
        {"workspace_low": (2.0, -1.0, -1.0), "workspace_high": (1.0, 1.0, 1.0)},
        {"max_linear": 0.0},
        {"max_angular_step": float("nan")},
        {"frame_id": ""},
    ],
)
def test_limits_that_limit_nothing_refuse_to_start(changes):
    with pytest.raises(ConfigError):
        CommandGuard(dataclasses.replace(CONFIG, **changes))


def test_pictures_that_arrived_long_ago_are_refused_however_new_their_stamps_look():
    guard = CommandGuard(CONFIG)
    limit_ns = int(CONFIG.image_timeout_s * SECOND)
    assert guard.check(command(), NOW, arrival_age_ns=limit_ns).passed
    result = guard.check(command(), NOW, arrival_age_ns=limit_ns + 1)
    assert_is_zero(result, gripper=0.0)
    assert result.reasons == (GuardReason.STALE_ARRIVAL,)


def test_a_position_in_another_frame_says_nothing_about_the_workspace():
    result = CommandGuard(CONFIG).check(command(), NOW, position=[0, 0, 0], position_frame="world")
    assert_is_zero(result, gripper=1.0)
    assert result.reasons == (GuardReason.WRONG_POSE_FRAME,)
    same = CommandGuard(CONFIG).check(command(), NOW, position=[0, 0, 0], position_frame="base")
    assert same.passed


def test_decisions_that_come_too_soon_share_the_step_limit():
    # 5 Hz with margin 2: the whole step of 0.25 m/s needs 100 ms, so 40 ms have 0.1 m/s.
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.02, 0.0, 0.0), angular=(0.0, 0.0, 0.0))
    soon = NOW + SECOND // 25
    result = sent(guard, soon, linear=(0.22, 0.0, 0.0))
    assert result.reasons == (
        GuardReason.LINEAR_STEP,
        GuardReason.RATE_LIMIT,
    )
    assert result.command.linear == pytest.approx([0.12, 0.0, 0.0])
    assert result.command.angular == pytest.approx([0.0, 0.0, 0.2])  # 0.8 * 0.4 = 0.32 rad/s


def test_repeating_a_command_is_no_change_and_takes_no_time_from_the_next_one():
    guard = CommandGuard(CONFIG)
    held = sent(guard, linear=(0.02, 0.0, 0.0)).command
    for step in range(1, 10):  # 50 Hz
        guard.sent(dataclasses.replace(held, stamp_ns=0), NOW + step * SECOND // 50)
    later = NOW + SECOND // 5
    assert sent(guard, later, linear=(0.25, 0.0, 0.0)).reasons == ()


def test_a_turn_alone_is_a_change_too():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.02, 0.0, 0.0), angular=(0.0, 0.0, 0.0))
    later = NOW + SECOND
    sent(guard, later, linear=(0.02, 0.0, 0.0), angular=(0.0, 0.0, 0.1))
    result = sent(guard, later, linear=(0.2, 0.0, 0.0), angular=(0.0, 0.0, 0.1))
    assert GuardReason.RATE_LIMIT in result.reasons


def test_two_decisions_at_one_moment_cannot_change_the_motion():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.1, 0.0, 0.0))
    result = sent(guard, linear=(0.0, 0.2, 0.0))
    assert result.command.linear == pytest.approx([0.1, 0.0, 0.0])
    assert GuardReason.RATE_LIMIT in result.reasons


def test_a_clock_that_goes_back_does_not_lock_the_motion():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.02, 0.0, 0.0))
    earlier = NOW - SECOND
    assert sent(guard, earlier, linear=(0.1, 0.0, 0.0)).reasons == ()


def test_at_the_control_rate_the_whole_step_is_free():
    guard = CommandGuard(CONFIG)
    sent(guard, linear=(0.0, 0.0, 0.0))
    later = NOW + SECOND // 5
    assert sent(guard, later, linear=(0.25, 0.0, 0.0)).reasons == ()


def test_ten_thousand_random_actions_and_none_unsafe():
    rng = np.random.default_rng(16)
    special = np.array([np.nan, np.inf, -np.inf, 1e300, -1e-300, 5e-324, 0.0, 1e30])
    guard = CommandGuard(CONFIG)
    before = np.zeros(3), np.zeros(3)
    refused = 0
    for step in range(10_000):
        now_ns = NOW + step * SECOND // 5
        values = rng.normal(0.0, 0.05, 7) * 10.0 ** rng.integers(-3, 4)
        bad = rng.random(7) < 0.05
        values[bad] = rng.choice(special, bad.sum())
        result = guard.check_action(values, now_ns, observed_ns=now_ns)
        guard.sent(result.command, now_ns)
        linear, angular = result.command.linear, result.command.angular
        assert np.isfinite([*linear, *angular, result.command.gripper]).all()
        assert np.linalg.norm(linear) <= CONFIG.max_linear
        assert np.linalg.norm(angular) <= CONFIG.max_angular
        assert 0.0 <= result.command.gripper <= 1.0
        assert result.passed == bool(np.isfinite(values).all())
        if result.passed:
            assert np.linalg.norm(linear - before[0]) <= CONFIG.max_linear_step
            assert np.linalg.norm(angular - before[1]) <= CONFIG.max_angular_step
        refused += not result.passed
        before = linear, angular
    assert 0 < refused < 10_000


def test_a_starved_publisher_never_shows_a_larger_change_than_allowed():
    """Decisions and the hold's repeats come at random times, some publishes not at all.

    What counts is the sequence on the wire: what was told to `sent`.
    """
    rng = np.random.default_rng(5)
    config = dataclasses.replace(CONFIG, max_linear_step=0.1, rate_margin=100.0)
    guard = CommandGuard(config)
    hold = CommandHold(300 * SECOND // 1000)
    now_ns, wire, refused = NOW, [np.zeros(3)], 0

    def publish(at_ns):
        held = hold.at(at_ns)
        guard.sent(held, at_ns)
        wire.append(held.linear)

    for _ in range(5000):
        now_ns += int(rng.choice([1, 20, 20, 200, 350, 900])) * SECOND // 1000
        event = rng.random()
        if event < 0.4:
            publish(now_ns)
            continue
        action = [*rng.normal(0.0, 0.05, 6), 1.0] if event < 0.9 else [np.nan] * 7
        result = guard.check_action(action, now_ns, observed_ns=now_ns)
        if result.passed:
            hold.put(result.command, now_ns)
        else:
            hold.clear("non_finite")
            refused += 1
        if rng.random() < 0.5:  # otherwise this thread is not served before the next event
            publish(now_ns)
    changes = [(new, np.linalg.norm(new - old)) for old, new in pairwise(wire)]
    assert len(changes) > 1000
    assert refused > 100
    assert max(change for new, change in changes if new.any()) <= config.max_linear_step
