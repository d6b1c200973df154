"""Which cameras have fallen silent, since when, and why their pictures do not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NO_FRAMES = "no_frames"
FROZEN = "frozen"
"""Pictures arrive, but always the same one: their stamp stands still."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A camera without a usable new picture.

    Attributes:
        reason: `no_frames`, `frozen`, or why its last picture was refused.
        since_ns: When the last usable picture arrived, or when listening began.
        stamp_ns: Stamp of that picture, nanoseconds; None if there was none.
    """

    reason: str
    since_ns: int
    stamp_ns: int | None


class CameraWatch:
    """Notes when each camera gave its last usable picture. Clocks are passed in; not thread-safe.

    A picture with new content and an old stamp is frozen too: nobody can tell when it was taken.
    Equal content under new stamps counts as new, since a scene may stand still.
    """

    def __init__(self, cameras: Sequence[str], timeout_ns: int, now_ns: int) -> None:
        """Begin to listen.

        Args:
            cameras: Names.
            timeout_ns: A camera is silent after this long without a usable picture, nanoseconds.
            now_ns: Time, nanoseconds.
        """
        self._timeout_ns = timeout_ns
        self._heard_ns = dict.fromkeys(cameras, now_ns)
        self._stamps_ns: dict[str, int] = {}
        self._reasons = dict.fromkeys(cameras, NO_FRAMES)
        self._told: set[str] = set()

    def note(self, camera: str, stamp_ns: int, now_ns: int) -> None:
        """Take note of a usable picture; one with the stamp of the one before is not new."""
        if self._stamps_ns.get(camera) == stamp_ns:
            self._reasons[camera] = FROZEN
            return
        self._stamps_ns[camera] = stamp_ns
        self._heard_ns[camera] = now_ns
        self._reasons[camera] = NO_FRAMES

    def refuse(self, camera: str, reason: str) -> None:
        """Take note of a picture that cannot be used."""
        self._reasons[camera] = reason

    def shift(self, delta_ns: int) -> None:
        """Follow a jump of time by this many nanoseconds: how long ago a picture came, stays."""
        for camera in self._heard_ns:
            self._heard_ns[camera] += delta_ns

    def silent(self, now_ns: int) -> dict[str, Silence]:
        """Return the silent cameras, in configured order."""
        return {
            camera: Silence(self._reasons[camera], heard_ns, self._stamps_ns.get(camera))
            for camera, heard_ns in self._heard_ns.items()
            if now_ns - heard_ns > self._timeout_ns
        }

    def changes(self, now_ns: int) -> tuple[dict[str, Silence], tuple[str, ...]]:
        """Return the cameras that fell silent and those that came back since the last call."""
        silent = self.silent(now_ns)
        lost = {camera: why for camera, why in silent.items() if camera not in self._told}
        back = tuple(camera for camera in self._heard_ns if camera in self._told - set(silent))
        self._told = set(silent)
        return lost, back
