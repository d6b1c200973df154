"""LIBERO tasks as an environment: the robot of a machine without a robot.

Poses are in the world frame of the LIBERO scene (metres; z up; x points from the robot to the
table). The robot's base stands in it without rotation, so a twist is the same in both frames.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.closing import Closing
from heisd_ros.command.command import to_action_values
from heisd_ros.errors import DataError
from heisd_ros.protocols import EnvironmentStep
from heisd_ros.simulation.cameras import SceneRenderer
from heisd_ros.simulation.scene import load_scene, seeded_numpy
from heisd_ros.types import (
    ACTION_DIM,
    EndEffectorCommand,
    FloatArray,
    Frame,
    Observation,
    Proprioception,
)

CONTROL_HZ = 20.0
TRANSLATION_SCALE = 0.05
"""Metres of goal offset that one action unit means (OSC_POSE of robosuite 1.4)."""
ROTATION_SCALE = 0.5
"""Radians of goal rotation that one action unit means (OSC_POSE of robosuite 1.4)."""
FINGER_GAP_MAX = 0.08
"""Metres between the open fingers of the Panda gripper."""
SETTLE_STEPS = 10
"""Control steps without motion before an episode begins (OpenVLA's evaluation protocol)."""
CAMERAS = {"third_person": "agentview", "wrist": "robot0_eye_in_hand"}
FRAME_ID = "world"
STAY = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
"""No motion, gripper open."""
_PLACEMENT_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class EndEffector:
    """The hand as the simulator knows it.

    Attributes:
        position: Grip site (3,), metres, world frame.
        orientation: Unit quaternion x y z w of the hand body, world frame.
        rotation: The same as a matrix (3, 3); column 1 is the axis along which the fingers move.
        finger_gap: Distance between the fingers, metres.
    """

    position: FloatArray
    orientation: FloatArray
    rotation: FloatArray
    finger_gap: float


class LiberoEnvironment(Closing):
    """One LIBERO task, one control period at a time; implements `protocols.Environment`.

    An episode is a function of its seed alone, bit for bit, whatever ran before in the process.
    Takes about 2 GB with rendering: keep one per process.
    """

    def __init__(
        self,
        suite: str,
        task: int,
        *,
        image_size: int = 128,
        official: bool = True,
        rendering: bool = True,
        settle_steps: int = SETTLE_STEPS,
    ) -> None:
        """Load the task's scene.

        Args:
            suite: Name of the suite, e.g. `libero_spatial`.
            task: Index of the task in its suite.
            image_size: Side of the square pictures, pixels.
            official: True: seed i is the i-th official initial state (0..49). False: the seed
                draws the placements from the task's own regions.
            rendering: False leaves the frames out and makes a step about seven times faster.
            settle_steps: Steps without motion at the start of an episode.

        Raises:
            MissingDependencyError: If LIBERO is not installed.
            DataError: If the suite or the task does not exist.
        """
        scene = load_scene(suite, task)
        self._env = scene.env
        self._inits = scene.initial_states
        self._instruction = scene.instruction
        self._official = official
        self._settle_steps = settle_steps
        self.model: Any = self._env.sim.model._model
        self._fixture_bodies = [
            self.model.body(fixture.root_body).id for fixture in self._env.fixtures_dict.values()
        ]
        self._renderer = SceneRenderer(self.model, image_size) if rendering else None

    @property
    def instruction(self) -> str:
        """The task in words."""
        return self._instruction

    @property
    def control_hz(self) -> float:
        """Control steps per second of simulated time."""
        return CONTROL_HZ

    @property
    def data(self) -> Any:  # noqa: ANN401  (mujoco.MjData)
        """The simulation's own data; privileged, no policy may look at it."""
        return self._env.sim.data._data

    @property
    def goal_objects(self) -> tuple[str, str]:
        """Names of the object to carry and of the place to carry it to; privileged."""
        names = self._env.obj_of_interest
        return str(names[0]), str(names[1])

    def reset(self, seed: int) -> Observation:
        """Start the episode of this seed; see `official` for what the seed means.

        Raises:
            DataError: If there is no official initial state of that number.
        """
        if self._official and not 0 <= seed < len(self._inits):
            raise DataError(
                f"official initial states are 0..{len(self._inits) - 1}, got {seed}; "
                "use official=False for seeded placements"
            )
        self._place_objects(seed)
        if self._official:
            self._env.sim.set_state_from_flattened(self._inits[seed])
            self._env.sim.forward()
        for _ in range(self._settle_steps):
            self.advance(STAY)
        return self.observe()

    def step(self, command: EndEffectorCommand) -> EnvironmentStep:
        """Apply one command for one control period."""
        return self.step_action(
            to_action_values(
                command,
                CONTROL_HZ,
                translation_scale=TRANSLATION_SCALE,
                rotation_scale=ROTATION_SCALE,
            )
        )

    def step_action(self, values: ArrayLike) -> EnvironmentStep:
        """Apply one action in the model's convention for one control period.

        Args:
            values: Action (7,): pose delta in controller units, clipped to [-1, 1]; gripper
                above 0.5 opens, else closes.
        """
        success = self.advance(values)
        return EnvironmentStep(self.observe(), success)

    def advance(self, values: ArrayLike) -> bool:
        """Do what `step_action` does without taking pictures; return whether the task is solved.

        Raises:
            DataError: If the action is not seven finite values.
        """
        _, _, solved, _ = self._env.step(to_controller_action(values))
        return bool(solved)

    def observe(self) -> Observation:
        """Return what the cameras and the joint sensors show now."""
        stamp_ns = round(self.data.time * 1e9)
        hand = self.end_effector()
        state = Proprioception(
            position=hand.position,
            orientation=hand.orientation,
            gripper_opening=float(np.clip(hand.finger_gap / FINGER_GAP_MAX, 0.0, 1.0)),
            stamp_ns=stamp_ns,
            frame_id=FRAME_ID,
        )
        return Observation(self._frames(stamp_ns), state, self._instruction, stamp_ns=stamp_ns)

    def success(self) -> bool:
        """Return whether the task's goal holds now."""
        return bool(self._env._check_success())

    def state(self) -> FloatArray:
        """Return time, joint positions and velocities as one array, for exact comparison."""
        return np.asarray(self._env.sim.get_state().flatten(), dtype=np.float64)

    def end_effector(self) -> EndEffector:
        """Return pose and finger gap of the hand."""
        hand = self.data.body("robot0_right_hand")
        w, x, y, z = hand.xquat
        fingers = [
            float(self.data.joint(f"gripper0_finger_joint{finger}").qpos[0]) for finger in (1, 2)
        ]
        return EndEffector(
            position=np.array(self.data.site("gripper0_grip_site").xpos),
            orientation=np.array([x, y, z, w]),
            rotation=np.array(hand.xmat).reshape(3, 3),
            finger_gap=fingers[0] - fingers[1],
        )

    @property
    def object_names(self) -> frozenset[str]:
        """Names that `position_of` knows; privileged."""
        return frozenset(self._env.object_states_dict)

    def position_of(self, name: str) -> FloatArray:
        """Return where an object, fixture or region is (3,), metres; privileged.

        Raises:
            DataError: If the scene has no such object.
        """
        known = self._env.object_states_dict
        if name not in known:
            raise DataError(f"no object {name!r} in this scene; known: {', '.join(sorted(known))}")
        return np.array(known[name].get_geom_state()["pos"], dtype=np.float64)

    def projections(self) -> FloatArray:
        """Return the world-to-pixel matrices of the cameras (V, 3, 4), in frame order.

        Raises:
            DataError: If the environment was made with `rendering=False`.
        """
        if self._renderer is None:
            raise DataError("no cameras: make the environment with rendering=True")
        return np.stack(
            [self._renderer.projection(self.data, camera) for camera in CAMERAS.values()]
        )

    def close(self) -> None:
        """Free the simulator; may be called twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        if self._env is not None:
            self._env.close()
            self._env = None

    def _place_objects(self, seed: int) -> None:
        # A soft reset keeps two things of the last episode: where the fixtures stand and the
        # gripper's ramp. The samplers read the regions on a fixture as if it stood at the origin;
        # without this the bowl on the stove lands behind the table.
        self.model.body_pos[self._fixture_bodies] = 0.0
        self.model.body_quat[self._fixture_bodies] = (1.0, 0.0, 0.0, 0.0)
        with seeded_numpy(seed):
            self._sample_placements()
        gripper = self._env.robots[0].gripper
        gripper.current_action = np.zeros_like(gripper.current_action)

    def _sample_placements(self) -> None:
        from robosuite.utils.errors import RandomizationError

        for _ in range(_PLACEMENT_ATTEMPTS):
            with contextlib.suppress(RandomizationError):
                self._env.reset()
                return
        raise DataError(f"no valid placement in {_PLACEMENT_ATTEMPTS} attempts; use another seed")

    def _frames(self, stamp_ns: int) -> tuple[Frame, ...]:
        if self._renderer is None:
            return ()
        return tuple(
            Frame(self._renderer.render(self.data, camera), name, stamp_ns)
            for name, camera in CAMERAS.items()
        )


def to_controller_action(values: ArrayLike) -> FloatArray:
    """Return what robosuite wants (7,): clipped deltas; gripper -1 opens, +1 closes.

    Args:
        values: Action (7,) in the model's convention, gripper 1 = open, 0 = close.

    Raises:
        DataError: If the action is not seven finite values.
    """
    action = np.array(values, dtype=np.float64)
    if action.shape != (ACTION_DIM,) or not np.isfinite(action).all():
        raise DataError(f"an action must be {ACTION_DIM} finite values, got {action!r}")
    gripper = -1.0 if action[6] > 0.5 else 1.0
    return np.append(np.clip(action[:6], -1.0, 1.0), gripper)
