"""Message types of bags without ROS: the standard ones, ours, and those that a bag brings along."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

from heisd_ros.errors import ConfigError, MissingDependencyError
from heisd_ros.share import PACKAGE, share_dir

TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(/(msg|srv|action))?/[A-Za-z][A-Za-z0-9_]*")
INSTALL = "rosbags reads and writes bags: pip install 'heisd_ros[bags]'"


def known_types() -> Any:  # noqa: ANN401  (rosbags.typesys.store.Typestore)
    """Return a type store with the messages of ROS 2 Jazzy and of this package.

    Raises:
        MissingDependencyError: If rosbags is not installed.
        ConfigError: If the message definitions were not installed.
    """
    return _known()


def types_of(connections: Iterable[Any]) -> Any:  # noqa: ANN401  (rosbags connections and store)
    """Return a type store for the topics of a bag; its own definitions win over ours.

    A definition that cannot be read is left out: its topic is then of unknown type.
    """
    base = _known()
    brought: dict[str, Any] = {}
    for connection in connections:
        brought.update(_readable_definition(connection))
    if all(_fields(base.fielddefs.get(name)) == _fields(d) for name, d in brought.items()):
        return base  # the usual case: making a store generates code for every type in it
    return _store_of({**base.fielddefs, **brought})


def _readable_definition(connection: Any) -> dict[str, Any]:  # noqa: ANN401
    try:
        found = _definition_of(connection)
    except _typesys().TypesysError:
        return {}
    # rosbags turns definitions into code, with the names in it: one that is no name is an attack.
    return found if all(TYPE_NAME.fullmatch(name) for name in found) else {}


def _definition_of(connection: Any) -> dict[str, Any]:  # noqa: ANN401
    typesys, text = _typesys(), connection.msgdef.data
    kind = connection.msgdef.format.name
    if kind == "MSG":
        return dict(typesys.get_types_from_msg(text, connection.msgtype))
    if kind == "IDL":
        found: dict[str, Any] = {}
        # Several files may be joined by a rule and a line with the name of the next one.
        for part in text.split("=" * 80 + "\n"):
            idl = part.partition("\n")[2] if part.startswith("IDL: ") else part
            if idl.strip():
                found.update(typesys.get_types_from_idl(idl))
        return found
    return {}


@functools.cache
def _known() -> Any:  # noqa: ANN401
    return _store_of({**_standard(), **_own()})


def _fields(definition: Any) -> Any:  # noqa: ANN401  (constants and fields of a type)
    """Return names and types of the fields; None for no definition."""
    return definition and [(field[0], field[1]) for field in definition[1]]


@functools.cache
def _standard() -> dict[str, Any]:
    typesys = _typesys()
    return dict(typesys.get_typestore(typesys.Stores.ROS2_JAZZY).fielddefs)


@functools.cache
def _own() -> dict[str, Any]:
    files = sorted((share_dir() / "msg").glob("*.msg"))
    if not files:
        raise ConfigError(
            f"no message definitions in {share_dir() / 'msg'}; install the package again "
            "(pip install .)"
        )
    found: dict[str, Any] = {}
    for path in files:
        text = path.read_text(encoding="utf-8")
        found.update(_typesys().get_types_from_msg(text, f"{PACKAGE}/msg/{path.stem}"))
    return found


def _store_of(definitions: dict[str, Any]) -> Any:  # noqa: ANN401
    typesys = _typesys()
    store = typesys.get_typestore(typesys.Stores.EMPTY)
    store.register(definitions)
    return store


def _typesys() -> Any:  # noqa: ANN401  (the module rosbags.typesys)
    try:
        from rosbags import typesys
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error
    return typesys
