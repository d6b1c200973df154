"""Numbers to what the arm receives: convert, guard, hold, debounce."""

from heisd_ros.command.command import to_action_values, to_command, zero_command

__all__ = ["to_action_values", "to_command", "zero_command"]
