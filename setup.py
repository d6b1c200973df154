"""`pip install .` runs the CMakeLists.txt of colcon and packs what it installs into the wheel.

Everything else about the package stands in pyproject.toml.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent
PACKAGE = "heisd_ros"


class PlatformDistribution(Distribution):
    """A wheel for one platform: it holds compiled message support."""

    def has_ext_modules(self) -> bool:
        """Return True, so that the wheel is not tagged as pure Python."""
        return True


class BuildInterfaces(build_py):
    """Compile msg/ with CMake and add libraries, index and shared files to the wheel."""

    def run(self) -> None:
        """Build modules and interfaces."""
        if getattr(self, "editable_mode", False):
            raise SystemExit(
                f"{PACKAGE} holds compiled messages and cannot be installed editable: use "
                "`pip install .` (run from the checkout, its sources win over the installed ones) "
                "or `colcon build --symlink-install`"
            )
        super().run()
        temp = Path(self.get_finalized_command("build").build_temp).resolve()
        stage = temp / "stage"
        # Always afresh: CMake's cache holds paths into pip's build environment, which is gone
        # by the next installation from the same checkout.
        for folder in (stage, temp / "cmake"):
            shutil.rmtree(folder, ignore_errors=True)
        run_cmake(temp / "cmake", stage)
        add_generated_modules(stage / "python" / PACKAGE, Path(self.build_lib) / PACKAGE)
        self.distribution.data_files = data_files(stage)


def run_cmake(build: Path, stage: Path) -> None:
    """Configure, build and install the CMake project into `stage`."""
    environment = cmake_environment()
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [
        *generator,
        *("-S", ROOT, "-B", build),
        "-DBUILD_TESTING=OFF",
        f"-DPython3_EXECUTABLE={sys.executable}",
        f"-DCMAKE_INSTALL_PREFIX={stage}",
        "-DPYTHON_INSTALL_DIR=python",
    ]
    jobs = os.cpu_count() or 1
    for arguments in (configure, ["--build", build, "--parallel", jobs], ["--install", build]):
        subprocess.run(["cmake", *map(str, arguments)], check=True, env=environment)


def cmake_environment() -> dict[str, str]:
    """Return the environment with the prefixes where ROS may live.

    In pip's isolated build the ROS wheels are not under sys.prefix; the folder that holds
    `ament_package` leads to them.
    """
    spec = importlib.util.find_spec("ament_package")
    isolated = [str(Path(spec.origin).resolve().parents[4])] if spec and spec.origin else []
    environment = dict(os.environ)
    for name in ("CMAKE_PREFIX_PATH", "AMENT_PREFIX_PATH"):
        prefixes = [*isolated, sys.prefix, os.environ.get(name)]
        environment[name] = os.pathsep.join(prefix for prefix in prefixes if prefix)
    return environment


def add_generated_modules(source: Path, target: Path) -> None:
    """Copy the generated modules and libraries, and nothing that has a source in the checkout."""
    for path in source.rglob("*"):
        relative = path.relative_to(source)
        if path.suffix in (".so", ".py") and not (ROOT / PACKAGE / relative).exists():
            copy = target / relative
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def data_files(stage: Path) -> list[tuple[str, list[str]]]:
    """Return what belongs under the environment's lib/ and share/, folder by folder."""
    folders: dict[str, list[str]] = {}
    for top in ("lib", "share"):
        for path in sorted((stage / top).rglob("*")):
            if path.is_file():
                folders.setdefault(str(path.parent.relative_to(stage)), []).append(str(path))
    return sorted(folders.items())


setup(
    cmdclass={"build_py": BuildInterfaces},
    distclass=PlatformDistribution,
    zip_safe=False,
)
