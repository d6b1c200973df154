import threading

import pytest

from heisd_ros.command import Arming, Reason
from heisd_ros.config import ArmingConfig

MS = 1_000_000


def arming(*, simulated=False, **fields):
    return Arming(ArmingConfig(**fields), simulated=simulated)


@pytest.mark.parametrize(
    ("start", "simulated", "armed"),
    [
        ("auto", True, True),
        ("auto", False, False),  # a real arm begins with a dry run
        ("armed", False, True),
        ("disarmed", True, False),
    ],
)
def test_a_real_arm_begins_with_a_dry_run(start, simulated, armed):
    state = arming(start=start, simulated=simulated)
    assert state.armed is armed
    assert state.block(0) is (None if armed else Reason.DRY_RUN)


def test_arming_ends_the_dry_run_and_disarming_begins_another():
    state = arming()
    assert state.arm(0) is None
    assert state.block(0) is None
    state.disarm()
    assert state.block(0) is Reason.DISARMED
    assert not state.armed


def test_an_emergency_stop_disarms_and_its_release_does_not_arm():
    state = arming(start="armed")
    state.estop(True, 0)
    assert state.block(0) is Reason.ESTOP
    assert state.arm(1) is Reason.ESTOP  # refused while it is pressed
    state.estop(False, 2)
    assert state.block(3600_000 * MS) is Reason.ESTOP  # an hour later
    assert state.arm(3) is None
    assert state.block(3) is None


def test_a_released_emergency_stop_leaves_an_armed_arm_alone():
    state = arming(start="armed")
    state.estop(False, 0)
    assert state.block(0) is None


def test_silence_of_an_emergency_stop_that_must_be_heard_disarms_for_good():
    state = arming(start="armed", estop_timeout_s=0.5)
    state.estop(False, 0)
    assert state.block(500 * MS) is None
    assert state.block(500 * MS + 1) is Reason.ESTOP_SILENT
    state.estop(False, 600 * MS)
    assert state.block(600 * MS) is Reason.ESTOP_SILENT  # heard again: still not armed
    assert state.arm(600 * MS) is None
    assert state.block(600 * MS) is None


def test_arming_is_refused_before_the_emergency_stop_is_heard():
    state = arming(estop_timeout_s=0.5)
    assert state.arm(0) is Reason.ESTOP_SILENT
    assert state.block(0) is Reason.DRY_RUN


def test_motion_needs_a_dead_mans_switch_that_is_held_and_heard():
    state = arming(start="armed", deadman=True, deadman_timeout_s=0.2)
    assert state.block(0) is Reason.DEADMAN  # never heard
    state.deadman(True, 0)
    assert state.block(200 * MS) is None
    assert state.block(200 * MS + 1) is Reason.DEADMAN  # silence is a released switch
    state.deadman(True, 300 * MS)
    assert state.block(300 * MS) is None  # momentary: held again, free again
    state.deadman(False, 310 * MS)
    assert state.block(310 * MS) is Reason.DEADMAN
    assert state.armed


def test_a_switch_that_is_not_asked_for_does_not_matter():
    state = arming(start="armed")
    state.deadman(False, 0)
    assert state.block(0) is None


def test_configuring_again_is_another_start_that_an_emergency_stop_outlives():
    state = arming()
    state.arm(0)
    state.configure(ArmingConfig(), simulated=False)
    assert state.block(0) is Reason.DRY_RUN
    state.arm(0)
    state.estop(True, 0)
    state.configure(ArmingConfig(start="armed"), simulated=False)
    assert state.block(0) is Reason.ESTOP


def test_whoever_asks_while_another_thread_presses_never_sees_motion_afterwards():
    state = arming(start="armed")
    pressed = threading.Event()
    after = []

    def press():
        state.estop(True, 1)
        pressed.set()

    thread = threading.Thread(target=press)
    thread.start()
    while not pressed.is_set():
        state.block(1)
    after.append(state.block(1))
    thread.join(timeout=10)
    assert after == [Reason.ESTOP]
