"""Loading a LIBERO task: quiet, headless, and reproducible."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.errors import DataError, MissingDependencyError
from heisd_ros.types import FloatArray

_INSTALL = "LIBERO is needed for the simulation: pip install 'heisd_ros[sim]'"


@dataclass(frozen=True, slots=True)
class Scene:
    """A task of LIBERO, loaded.

    Attributes:
        env: robosuite's environment.
        initial_states: Official initial states (50, n), flattened simulator states.
        instruction: The task in words.
    """

    env: Any
    initial_states: FloatArray
    instruction: str


def load_scene(suite_name: str, task_index: int) -> Scene:
    """Load one task without cameras.

    Raises:
        MissingDependencyError: If LIBERO is not installed.
        DataError: If the suite or the task does not exist.
    """
    os.environ.setdefault("MUJOCO_GL", "egl")  # headless; must be set before the first import
    with _silence():
        try:
            from libero.libero import benchmark, get_libero_path
            from libero.libero.envs.env_wrapper import ControlEnv
        except ImportError as error:
            raise MissingDependencyError(_INSTALL) from error
        suites = benchmark.get_benchmark_dict()
        if suite_name not in suites:
            raise DataError(f"unknown suite {suite_name!r}; known: {', '.join(sorted(suites))}")
        suite = suites[suite_name](task_order_index=0)
        if not 0 <= task_index < suite.n_tasks:
            raise DataError(f"{suite_name} has tasks 0..{suite.n_tasks - 1}, got {task_index}")
        task = suite.get_task(task_index)
        bddl_file = Path(get_libero_path("bddl_files")) / task.problem_folder / task.bddl_file
        wrapper = ControlEnv(
            bddl_file_name=str(bddl_file),
            has_renderer=False,
            has_offscreen_renderer=False,  # SceneRenderer has its own buffer
            use_camera_obs=False,
            hard_reset=False,
            ignore_done=True,
        )
        initial_states = np.asarray(suite.get_task_init_states(task_index))
    # The wrapper's reset() swallows every exception, KeyboardInterrupt included.
    return Scene(wrapper.env, initial_states, str(task.language))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep robosuite's and LIBERO's import chatter off the terminal."""
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


@contextlib.contextmanager
def seeded_numpy(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, which robosuite's samplers draw from, and put it back."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
