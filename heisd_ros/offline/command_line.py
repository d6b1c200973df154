"""What several verbs read from the command line: number lists, settings, layered files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import yaml

from heisd_ros.config import HeisdConfig, make_config, read_values
from heisd_ros.errors import ConfigError


def read_config(
    files: Sequence[Path], settings: Sequence[str], *, store: str | None = None
) -> HeisdConfig:
    """Return the configuration of several files and settings; the later one wins.

    Args:
        files: YAML files, e.g. the embodiment and its calibration.
        settings: `section.field=value`, value as in YAML.
        store: Folder or server of the demonstration store.

    Raises:
        ConfigError: If a file or a setting is wrong.
    """
    values: dict[str, object] = {}
    for file in files:
        values.update(read_values(file))
    values.update(dict(_setting(text) for text in settings))
    if store is not None:
        values["retrieval.store"] = store
    return make_config(values)


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of `0,3,10-12`, each once and in order.

    Raises:
        argparse.ArgumentTypeError: If it is something else.
    """
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not low.strip().isdigit() or (high and not high.strip().isdigit()):
            raise argparse.ArgumentTypeError(f"expected numbers such as 0,3,10-12; got {text!r}")
        found += range(int(low), int(high or low) + 1)
    return tuple(dict.fromkeys(found))


def name_and_value(text: str, option: str) -> tuple[str, str]:
    """Split `NAME=VALUE`, or raise ConfigError that names the option."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise ConfigError(f"{option} expects NAME=VALUE, got {text!r}")
    return name.strip(), value.strip()


def _setting(text: str) -> tuple[str, object]:
    name, value = name_and_value(text, "--set")
    return name, yaml.safe_load(value)
