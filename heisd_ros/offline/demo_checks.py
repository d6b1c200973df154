"""What the demo needs, looked for before anything is started, each with the line that mends it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

from heisd_ros.build import NONE, checkpoint_dir
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.methods import method_named
from heisd_ros.demonstrations.store_address import is_server
from heisd_ros.errors import MissingDependencyError, StoreError
from heisd_ros.share import weights_dir

GL_LIBRARY = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
GL_INSTALL = {
    "egl": "sudo apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri",
    "osmesa": "sudo apt-get install libosmesa6",
}
MODULES = {
    "libero": ("LIBERO is the simulated robot", "pip install 'heisd_ros[sim]'"),
    "torch": ("torch runs the model", "pip install 'heisd_ros[models]' torch==2.13.0"),
    "transformers": ("transformers reads the model's text", "pip install 'heisd_ros[models]'"),
    "rclpy": ("rclpy starts the nodes", "pip install 'heisd_ros[jazzy]'"),
    "rosbags": ("rosbags records the run", "pip install 'heisd_ros[bags]'"),
    "matplotlib": ("matplotlib draws the report", "pip install 'heisd_ros[report]'"),
}


def check_all(config: HeisdConfig, methods: tuple[str, ...]) -> None:
    """Refuse to begin when something is missing.

    Raises:
        MissingDependencyError: With the install line, for a library or package.
        ModelError: If there is no checkpoint.
        StoreError: If a method needs demonstrations and there are none.
        ConfigError: If a method is unknown.
    """
    needs_store = [name for name in methods if method_named(name).needs_store]
    check_modules()
    check_messages()
    check_graphics(os.environ.get("MUJOCO_GL", "egl"))
    checkpoint_dir(config)
    if needs_store:
        check_store(config, needs_store[0])


def check_modules() -> None:
    """Refuse a missing package."""
    for module, (purpose, install) in MODULES.items():
        if importlib.util.find_spec(module) is None:
            raise MissingDependencyError(f"{purpose} and is not installed: {install}")


def check_messages() -> None:
    """Refuse an installation without compiled messages."""
    if importlib.util.find_spec("heisd_ros.msg") is None:
        raise MissingDependencyError(
            "heisd_ros.msg is not compiled: run `pip install .` in the checkout, or build the "
            "workspace with colcon and source it"
        )


def check_graphics(backend: str) -> None:
    """Refuse to render without the library of the chosen MuJoCo backend (MUJOCO_GL)."""
    library = GL_LIBRARY.get(backend)
    if library is None:
        return  # a window system: MuJoCo itself says what is wrong with it
    try:
        ctypes.CDLL(library)
    except OSError as error:
        raise MissingDependencyError(
            f"{library} is missing, MuJoCo needs it to draw the cameras: {GL_INSTALL[backend]}"
        ) from error


def check_store(config: HeisdConfig, method: str) -> None:
    """Refuse a method that retrieves when there is nothing to retrieve from."""
    name = config.retrieval.store
    if name == NONE or is_server(name):
        return
    path = Path(name) if name else weights_dir() / "store"
    if not path.is_dir():
        raise StoreError(
            f"no demonstration store at {path}, method {method} needs one; build it with "
            "`heisd build-db` or run `heisd demo --method ar`"
        )
