"""The package's errors: each message says what was expected, what came, and what to do."""

from __future__ import annotations


class HeisdError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(HeisdError, ValueError):
    """A configuration value is unknown, out of range, or contradicts another one."""


class ShapeError(HeisdError, ValueError):
    """An array does not have the documented shape."""


class ModelError(HeisdError, RuntimeError):
    """A checkpoint cannot be loaded, fails its self-check, or produced something impossible."""


class StoreError(HeisdError, RuntimeError):
    """A demonstration store cannot be opened, is damaged, or was built for something else."""


class StoreUnavailableError(StoreError):
    """The server of a demonstration store is away, too slow, or answers what cannot be used."""


class DataError(HeisdError, ValueError):
    """Input data (image, pose, bag, demonstration) is malformed."""


class MissingDependencyError(HeisdError, ImportError):
    """An optional package is needed; the message carries the install line."""


class NotStartedError(HeisdError, RuntimeError):
    """A node could not be configured or activated; the message carries the reason."""
