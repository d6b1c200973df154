import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy")

from ros_fakes import TOKENS, result_of

from heisd_ros.decode.pilot import Decision
from heisd_ros.nodes.records import (
    EPISODE_END,
    decision_to_report,
    episode_end_report,
    message_to_report,
    to_diagnostics,
)
from heisd_ros.types import DraftKind, EndEffectorCommand, Observation

VALUES = [0.01, 0.02, 0.03, 0.1, 0.2, 0.3, 1.0]
COMMAND = EndEffectorCommand(np.zeros(3), np.zeros(3), 1.0, "base", 0)
OBSERVATION = Observation((), None, "pick up the cup", stamp_ns=5)


def decision(result, *, guard=(), reason="", moves=True):
    return Decision(OBSERVATION, result, COMMAND, guard, reason, moves)


def test_report_says_what_was_decoded_from_what():
    message = decision_to_report(decision(result_of(VALUES)), 9, 3)
    assert message.tokens.tolist() == TOKENS.tolist()
    assert message.action.tolist() == VALUES
    assert (message.instruction, message.sequence, message.decided) == ("pick up the cup", 3, True)
    assert (message.image_stamp.nanosec, message.header.stamp.nanosec) == (5, 9)
    assert (message.kind, message.forwards, message.header.frame_id) == ("ar", 7, "base")


def test_report_goes_to_a_message_and_back():
    result = result_of(VALUES, reason="no_neighbours")
    message = decision_to_report(decision(result, reason="no_neighbours"), 9, 3)
    back = message_to_report(message)
    assert back.kind is result.report.kind
    assert back.stage_ms == {"total": 1.5}
    assert (back.accept_length, back.forwards, back.reason) == (1, 7, "no_neighbours")
    assert math.isnan(back.fused)
    assert back.scores == ()
    assert math.isnan(back.spread)
    assert math.isnan(back.gripper_consensus)


def test_what_was_retrieved_goes_to_a_message_and_back():
    result = result_of(VALUES)
    near = {"scores": (0.75, 0.5), "spread": 4.5, "gripper_consensus": 0.5, "top_score": 0.75}
    report = replace(result.report, kind=DraftKind.RETRIEVAL, **near)
    message = decision_to_report(decision(replace(result, report=report)), 9, 3)
    back = message_to_report(message)
    assert {name: getattr(back, name) for name in near} == near


def test_failed_decision_has_no_action():
    failed = decision(None, guard=("decoder_failed",), reason="decoder_failed", moves=False)
    message = decision_to_report(failed, 9, 0)
    assert not message.decided
    assert not message.tokens.any()
    assert not message.action.any()
    assert (message.reason, message.guard) == ("decoder_failed", "decoder_failed")
    assert message_to_report(message).reason == "decoder_failed"
    assert math.isnan(message.spread)
    assert math.isnan(message.gripper_consensus)


def test_action_of_wrong_length_is_not_squeezed_into_the_message():
    message = decision_to_report(decision(result_of([1.0] * 8), moves=False), 9, 0)
    assert not message.action.any()


def test_end_of_episode_is_acknowledged_with_the_stamp_of_the_status():
    message = episode_end_report(11, 12)
    assert (message.reason, message.image_stamp.nanosec) == (EPISODE_END, 11)
    assert not message.decided


def test_diagnostics_carry_counters_as_text():
    array = to_diagnostics("decoder: decisions", b"\x01", "stale", {"late_result": 2}, 3)
    status = array.status[0]
    assert (status.name, status.level, status.message) == ("decoder: decisions", b"\x01", "stale")
    assert (status.values[0].key, status.values[0].value) == ("late_result", "2")
