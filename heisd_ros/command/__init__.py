"""Numbers to what the arm receives: convert, guard, hold, debounce."""

from heisd_ros.command.command import to_action_values, to_command, zero_command
from heisd_ros.command.debounce import GripperDebounce
from heisd_ros.command.guard import CommandGuard, GuardReason, GuardResult
from heisd_ros.command.hold import CommandHold

__all__ = [
    "CommandGuard",
    "CommandHold",
    "GripperDebounce",
    "GuardReason",
    "GuardResult",
    "to_action_values",
    "to_command",
    "zero_command",
]
