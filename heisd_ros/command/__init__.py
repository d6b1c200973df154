"""Numbers to what the arm receives: convert, guard, arm, hold, debounce."""

from heisd_ros.command.arming import Arming
from heisd_ros.command.command import to_action_values, to_command, zero_command
from heisd_ros.command.debounce import GripperDebounce
from heisd_ros.command.guard import CommandGuard, GuardReason, GuardResult
from heisd_ros.command.hold import CommandHold
from heisd_ros.command.reasons import Reason
from heisd_ros.command.tail import ZeroTail

__all__ = [
    "Arming",
    "CommandGuard",
    "CommandHold",
    "GripperDebounce",
    "GuardReason",
    "GuardResult",
    "Reason",
    "ZeroTail",
    "to_action_values",
    "to_command",
    "zero_command",
]
