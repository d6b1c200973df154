"""Stand-ins for `launch` and `launch_ros`, which pip cannot install: they record arguments."""

from __future__ import annotations

import sys
from types import ModuleType

NAMES = {
    "launch": ["LaunchDescription"],
    "launch.actions": [
        "DeclareLaunchArgument",
        "ExecuteProcess",
        "GroupAction",
        "IncludeLaunchDescription",
    ],
    "launch.conditions": ["IfCondition", "UnlessCondition"],
    "launch.launch_description_sources": ["PythonLaunchDescriptionSource"],
    "launch.substitutions": ["LaunchConfiguration", "PathJoinSubstitution"],
    "launch_ros": [],
    "launch_ros.actions": ["Node"],
    "launch_ros.parameter_descriptions": ["ParameterValue"],
    "launch_ros.substitutions": ["FindPackageShare"],
}


class Recorded:
    """What was constructed: class name, positional and keyword arguments."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs

    @property
    def kind(self):
        return type(self).__name__

    def walk(self):
        """Yield this object and everything recorded inside it."""
        yield self
        for value in (*self.args, *self.kwargs.values()):
            yield from walk(value)


def walk(value):
    """Yield every recorded object inside a value."""
    if isinstance(value, Recorded):
        yield from value.walk()
    elif isinstance(value, dict):
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from walk(item)


def install(monkeypatch):
    """Put the stand-ins where `import launch` finds them, for one test."""
    for name, classes in NAMES.items():
        module = ModuleType(name)
        for class_name in classes:
            setattr(module, class_name, type(class_name, (Recorded,), {}))
        monkeypatch.setitem(sys.modules, name, module)
