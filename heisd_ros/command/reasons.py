"""Why a command was changed, refused or replaced by zero: one enumeration for the whole path.

The values are the machine words in reports and diagnostics; `msg/Reason.msg` lists the same.
"""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """Why the arm does not do exactly what was decided."""

    # What the guard refuses or changes.
    NON_FINITE = "non_finite"
    WRONG_LENGTH = "wrong_length"
    LINEAR_LIMIT = "linear_limit"
    ANGULAR_LIMIT = "angular_limit"
    LINEAR_STEP = "linear_step"
    ANGULAR_STEP = "angular_step"
    RATE_LIMIT = "rate_limit"
    GRIPPER_LIMIT = "gripper_limit"
    OUTSIDE_WORKSPACE = "outside_workspace"
    STALE_IMAGE = "stale_image"
    STALE_ARRIVAL = "stale_arrival"
    STALE_COMMAND = "stale_command"
    FUTURE_STAMP = "future_stamp"
    EMPTY_FRAME = "empty_frame"
    WRONG_FRAME = "wrong_frame"
    WRONG_POSE_FRAME = "wrong_pose_frame"
    OLD_INSTRUCTION = "old_instruction"
    DECODER_FAILED = "decoder_failed"
    LATE_RESULT = "late_result"
    INACTIVE = "inactive"

    # Why nothing is held.
    EMPTY = "empty"
    STALE = "stale"
    CLOCK_BACK = "clock_back"
    NEW_INSTRUCTION = "new_instruction"
    EPISODE_END = "episode_end"
    STOP_REQUESTED = "stop_requested"
    TOO_MANY_FAILURES = "too_many_failures"
    SHUTDOWN = "shutdown"

    # Why nothing may leave, whatever is decided.
    DRY_RUN = "dry_run"
    DISARMED = "disarmed"
    ESTOP = "estop"
    ESTOP_SILENT = "estop_silent"
    DEADMAN = "deadman"

    # Who else is there.
    FOREIGN_PUBLISHER = "foreign_publisher"

    # Beyond the twist: MoveIt Servo and the gripper.
    SERVO_NOT_READY = "servo_not_ready"
    SERVO_REFUSED = "servo_refused"
    SERVO_HALTED = "servo_halted"
    INPUT_SILENT = "input_silent"
    GRIPPER_ABSENT = "gripper_absent"
    GRIPPER_REJECTED = "gripper_rejected"
    GRIPPER_DEADLINE = "gripper_deadline"
    GRIPPER_FAILED = "gripper_failed"
