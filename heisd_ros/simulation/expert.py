"""A scripted pick-and-place expert: the teacher of the small model.

Markov up to a few constants per episode: the mode is decided anew in every step from what the
hand and the objects do, so it can label the states that another policy led to. It reads the
simulator's object poses; no policy may.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from heisd_ros.simulation.grasp import Grasp, collision_points, plan_grasp
from heisd_ros.simulation.libero import ROTATION_SCALE, TRANSLATION_SCALE, LiberoEnvironment
from heisd_ros.types import FloatArray

MAX_SPEED = 0.95
"""Largest translation command, action units."""
GAIN = np.array([1.2, 1.2, 1.2])
ROTATION_GAIN = 0.7
ROTATION_DEADBAND = 0.02
"""Radians of tilt or yaw error left alone: below it the commands would be noise."""
UP = np.array([0.0, 0.0, 1.0])
CLEARANCE = 0.06
"""Metres between the carried object's underside and the target's top on the way."""
LOWERING = 0.055
"""Metres to go down from there before the fingers open."""
EMPTY_GAP = 0.002
"""Metres between fingers that closed on nothing."""
HELD_SLIP = 0.03
"""Metres that a held object may turn or slip away from the planned grasp and still be held."""
LIFT = 0.10
"""Metres to lift before moving sideways."""


class Mode(IntEnum):
    """What the expert is doing; the numbers are stored in demonstration files."""

    APPROACH = 0
    CLOSE = 1
    CARRY = 2
    OPEN = 3
    RISE = 4


@dataclass(frozen=True, slots=True)
class Advice:
    """The expert's label of one step.

    Attributes:
        values: Action (7,), model convention: pose delta in controller units, gripper 1 = open.
        mode: What the expert is doing.
        hold_still: True while the label says `lift` but a demonstration should not move yet, so
            that the data holds enough pictures of a closed gripper at rest.
        grasp_point: Where the grip site has to be to grasp (3,), metres, world frame.
        place_point: Where the grip site has to be to release (3,), metres, world frame.
    """

    values: FloatArray
    mode: Mode
    hold_still: bool
    grasp_point: FloatArray
    place_point: FloatArray


@dataclass(frozen=True, slots=True)
class _Look:
    """One step's measurements, metres, world frame."""

    hand: FloatArray
    rotation: FloatArray
    gap: float
    gap_change: float
    speed: float
    grasp: FloatArray
    above_target: FloatArray
    release_z: float
    resting: bool

    @property
    def to_grasp(self) -> FloatArray:
        return self.grasp - self.hand

    @property
    def grasp_distance(self) -> float:
        return float(np.linalg.norm(self.to_grasp[:2]))

    @property
    def target_distance(self) -> float:
        return float(np.linalg.norm((self.above_target - self.hand)[:2]))

    def near(self, margin: float = 0.0) -> bool:
        side, height = self.grasp_distance, abs(self.to_grasp[2])
        return bool(side < 0.025 + margin and height < 0.03 + margin)


class PickPlaceExpert:
    """Carries the task's object to the task's target; make a new one for each episode."""

    def __init__(self, env: LiberoEnvironment, rng: np.random.Generator) -> None:
        """Plan the grasp from the present state.

        Args:
            env: The environment, just reset.
            rng: Draws how long the closed gripper rests before each lift.

        Raises:
            DataError: If the object cannot be grasped.
        """
        self._env = env
        self._rng = rng
        self._object, self._target = env.goal_objects
        self.grasp: Grasp = plan_grasp(env, self._object)
        self._rest_z = float(env.position_of(self._object)[2])
        self._target_top = _target_top(env, self._target)
        self._last_hand: FloatArray | None = None
        self._last_gap = 0.0
        self._still_steps = 0
        self._stuck_steps = 0
        self._retreat_steps = 0
        self._rest_steps = self._draw_rest()
        self._releasing = False
        self._reopening = False

    def act(self) -> Advice:
        """Return the label of the present state; call once per control step."""
        look = self._look()
        mode = self._decide(look)
        translation, gripper = self._move(mode, look)
        hold_still = self._rests(mode, look)
        return Advice(
            values=np.concatenate([translation, self._turn(look), [gripper]]),
            mode=mode,
            hold_still=hold_still,
            grasp_point=look.grasp,
            place_point=np.append(self._place_xy(look), look.release_z),
        )

    def _look(self) -> _Look:
        env, hand = self._env, self._env.end_effector()
        item, target = env.position_of(self._object), env.position_of(self._target)
        gap_change, speed = 0.0, float("inf")
        if self._last_hand is not None:
            gap_change = hand.finger_gap - self._last_gap
            speed = float(np.linalg.norm(hand.position - self._last_hand))
        self._last_hand, self._last_gap = hand.position, hand.finger_gap
        carry_z = self._target_top + CLEARANCE + self.grasp.above_bottom
        return _Look(
            hand=hand.position,
            rotation=hand.rotation,
            gap=hand.finger_gap,
            gap_change=gap_change,
            speed=speed,
            grasp=item + self.grasp.offset,
            above_target=np.append(target[:2] - item[:2] + hand.position[:2], carry_z),
            release_z=carry_z - LOWERING,
            resting=bool(np.linalg.norm((item - target)[:2]) < 0.03 and item[2] < target[2] + 0.06),
        )

    def _decide(self, look: _Look) -> Mode:
        closed = self._is_closed(look)
        at_target = look.target_distance < 0.03 and look.hand[2] < look.release_z + 0.03
        self._releasing = self._releasing and look.near(HELD_SLIP) and at_target
        if look.gap > 0.03 and at_target and (look.resting or self._releasing):
            return Mode.RISE
        if self._releasing:
            return Mode.OPEN
        if self._must_reopen(look):
            return Mode.APPROACH
        if closed and look.near(HELD_SLIP):
            self._releasing = self._may_release(look)
            return Mode.OPEN if self._releasing else Mode.CARRY
        free = self._retreat_steps == 0
        closing = look.gap < 0.07 or look.gap_change < -0.0005
        holding = look.near() and look.grasp_distance < 0.02 and closing
        arrived = look.grasp_distance < 0.009 and abs(look.to_grasp[2]) < 0.008
        return Mode.CLOSE if free and (holding or arrived) else Mode.APPROACH

    def _must_reopen(self, look: _Look) -> bool:
        # Fingers that met hold nothing. Half open they would look as if they held the rim.
        self._reopening = look.gap < EMPTY_GAP or (self._reopening and look.gap < 0.06)
        return self._reopening

    def _is_closed(self, look: _Look) -> bool:
        # One still step is not enough: opening and closing fingers stop for a moment in between.
        still = abs(look.gap_change) < 0.0008 and look.gap < self.grasp.width + 0.030
        self._still_steps = self._still_steps + 1 if still else 0
        return look.gap < self.grasp.width + 0.006 or self._still_steps >= 3

    def _may_release(self, look: _Look) -> bool:
        if look.target_distance >= 0.018:
            return False
        stopped = look.hand[2] < look.above_target[2] - 0.01 and look.speed < 0.002
        return bool(look.hand[2] < look.release_z + 0.012 or stopped)

    def _move(self, mode: Mode, look: _Look) -> tuple[FloatArray, float]:
        """Return translation (3,) in action units and the gripper, 1 = open."""
        if mode is Mode.APPROACH:
            return self._approach(look), 1.0
        if mode is Mode.CLOSE:
            return np.clip(look.to_grasp / TRANSLATION_SCALE, -0.3, 0.3), 0.0
        if mode is Mode.RISE:
            return np.array([0.0, 0.0, 0.6]), 1.0
        if mode is Mode.OPEN:
            return 0.3 * self._carry(look), 1.0
        return self._carry(look), 0.0

    def _approach(self, look: _Look) -> FloatArray:
        """Come down a funnel: high while off to the side, turned wrongly or still closed."""
        self._rest_steps = self._draw_rest()
        if self._retreat_steps > 0:
            self._retreat_steps -= 1
            return _towards(look.grasp + 0.06 * UP, look.hand, 0.8)
        height = float(np.clip((look.grasp_distance - 0.010) / 0.04, 0.0, 1.0))
        if abs(self._yaw_command(look)) > 0.12:
            height = 1.0
        if look.gap < max(0.06, self.grasp.width):
            height = max(height, 0.5)
        hover = LIFT if self.grasp.height < 0.1 else self.grasp.height + 0.03
        translation = _towards(look.grasp + hover * height * UP, look.hand, MAX_SPEED)
        if height < 0.3:
            translation[2] = np.clip(translation[2], -0.6, 0.6)
        self._notice_stuck(look, float(translation[2]))
        return translation

    def _notice_stuck(self, look: _Look, vertical: float) -> None:
        above = -float(look.to_grasp[2])
        blocked = look.grasp_distance < 0.03 and 0.008 < above < 0.06 and look.speed < 0.0012
        if blocked and vertical < -0.05:
            self._stuck_steps += 1
        if self._stuck_steps > 3:
            self._retreat_steps, self._stuck_steps = 6, 0

    def _carry(self, look: _Look) -> FloatArray:
        """Lift, move sideways as height is gained, funnel down above the target."""
        distance, carry_z = look.target_distance, look.above_target[2]
        high = max(carry_z, self._rest_z + self.grasp.offset[2] + LIFT)
        lifted = np.clip((look.hand[2] - (high - 0.08)) / 0.05, 0.0, 1.0)
        sideways = 1.0 if distance < 0.06 else float(lifted)
        down = float(np.clip((0.035 - distance) / 0.02, 0.0, 1.0))
        z = (high if distance > 0.10 else carry_z) * (1.0 - down) + look.release_z * down
        xy = look.hand[:2] + sideways * (look.above_target - look.hand)[:2]
        return _towards(np.append(xy, z), look.hand, MAX_SPEED)

    def _rests(self, mode: Mode, look: _Look) -> bool:
        at_rest = look.hand[2] < self._rest_z + self.grasp.offset[2] + 0.012
        if mode is not Mode.CARRY or not at_rest or look.target_distance < 0.06:
            return False
        self._rest_steps -= 1
        return self._rest_steps >= 0

    def _draw_rest(self) -> int:
        return int(self._rng.integers(3, 13))

    def _turn(self, look: _Look) -> FloatArray:
        """Keep the hand vertical and at the planned yaw; (3,) in action units."""
        tilt = np.cross(look.rotation[:, 2], [0.0, 0.0, -1.0])[:2]
        upright = np.clip(_deadband(tilt) * ROTATION_GAIN / ROTATION_SCALE, -0.5, 0.5)
        return np.append(upright, self._yaw_command(look))

    def _yaw_command(self, look: _Look) -> float:
        yaw = np.arctan2(-look.rotation[0, 1], look.rotation[1, 1])
        # The hand is the same after half a turn.
        error = (self.grasp.yaw - yaw + np.pi / 2) % np.pi - np.pi / 2
        command = _deadband(np.array([error])) * ROTATION_GAIN / ROTATION_SCALE
        return float(np.clip(command[0], -0.5, 0.5))

    def _place_xy(self, look: _Look) -> FloatArray:
        target = self._env.position_of(self._target)[:2]
        held = (
            look.hand - (look.grasp - self.grasp.offset)
            if look.near(HELD_SLIP) and look.gap < 0.03
            else self.grasp.offset
        )
        return np.asarray(target + held[:2], dtype=np.float64)


def _towards(goal: FloatArray, hand: FloatArray, limit: float) -> FloatArray:
    return np.asarray(np.clip((goal - hand) / TRANSLATION_SCALE * GAIN, -limit, limit))


def _deadband(angles: FloatArray) -> FloatArray:
    """Shrink an angle vector by the dead band; continuous, zero inside."""
    size = float(np.linalg.norm(angles))
    return angles * (max(0.0, size - ROTATION_DEADBAND) / size) if size > 0.0 else angles


def _target_top(env: LiberoEnvironment, target: str) -> float:
    points = collision_points(env, lambda name: name.startswith(target))
    return float(points[:, 2].max()) if len(points) else float(env.position_of(target)[2])
