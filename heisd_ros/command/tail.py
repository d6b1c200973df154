"""What is said at rest: zero for ever, or some zeros and then nothing."""

from __future__ import annotations

from heisd_ros.errors import ConfigError
from heisd_ros.types import EndEffectorCommand


class ZeroTail:
    """Lets every motion through, and of the zeros after it only as many as are wanted.

    Not thread-safe: it belongs to the one who publishes.
    """

    def __init__(self, zeros: int) -> None:
        """Set up; nothing has moved yet, so zeros are not needed yet.

        Args:
            zeros: Zero commands after the last motion, >= 1.

        Raises:
            ConfigError: If there would be none: the arm would go on.
        """
        if zeros < 1:
            raise ConfigError(f"at least one zero command must follow a motion, got {zeros}")
        self._zeros = zeros
        self._left = 0

    def restart(self) -> None:
        """Say the zeros once more, e.g. because a stop was asked for."""
        self._left = self._zeros

    def passes(self, command: EndEffectorCommand, *, silent: bool) -> bool:
        """Return whether this command is to be sent.

        Args:
            command: The next one.
            silent: Whether silence follows the zeros; otherwise they never end.
        """
        if command.linear.any() or command.angular.any():
            self._left = self._zeros
            return True
        if self._left > 0:
            self._left -= 1
            return True
        return not silent
