"""The `with` statement for everything that is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """A class with `close`, which is called at the end of a `with` block, whatever happened."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; may be called twice."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
