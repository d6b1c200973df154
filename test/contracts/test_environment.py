"""What every environment promises; the point robot of the node tests is held to it too."""

import numpy as np
import pytest
from ros_fakes import LineEnvironment

from heisd_ros.command.command import to_command
from heisd_ros.protocols import Environment, EnvironmentStep

VALUES = np.array([0.3, -0.2, 0.1, 0.0, 0.1, 0.0, 1.0])


def _libero():
    pytest.importorskip("libero", reason="LIBERO is not installed")
    from heisd_ros.simulation.libero import LiberoEnvironment

    return LiberoEnvironment("libero_spatial", 0, image_size=32)


@pytest.fixture(scope="module", params=["line", pytest.param("libero", marks=pytest.mark.sim)])
def env(request):
    made = LineEnvironment() if request.param == "line" else _libero()
    yield made
    made.close()


def play(env, seed, steps=3):
    observations = [env.reset(seed)]
    command = to_command(VALUES, env.control_hz, "world")
    observations += [env.step(command).observation for _ in range(steps)]
    return observations


class TestEnvironment:
    def test_implements_the_protocol(self, env):
        assert isinstance(env, Environment)

    def test_says_what_to_do_and_how_fast(self, env):
        assert env.instruction.strip()
        assert env.control_hz > 0.0

    def test_every_observation_carries_pictures_pose_and_instruction(self, env):
        for seen in play(env, 1):
            assert seen.instruction == env.instruction
            assert len({frame.camera for frame in seen.frames}) == len(seen.frames) > 0
            for frame in seen.frames:
                assert frame.image.dtype == np.uint8
                assert frame.image.shape[2] == 3
            pose = seen.proprioception
            assert np.isfinite(pose.position).all()
            assert np.linalg.norm(pose.orientation) == pytest.approx(1.0)
            assert 0.0 <= pose.gripper_opening <= 1.0

    def test_same_seed_is_the_same_episode_bit_for_bit(self, env):
        first = play(env, 2)
        play(env, 3)
        for seen, again in zip(first, play(env, 2), strict=True):
            pairs = zip(seen.frames, again.frames, strict=True)
            assert all(np.array_equal(a.image, b.image) for a, b in pairs)
            assert np.array_equal(seen.proprioception.position, again.proprioception.position)

    def test_time_does_not_run_backwards(self, env):
        stamps = [seen.stamp_ns for seen in play(env, 1)]
        assert stamps == sorted(stamps)

    def test_a_command_moves_the_hand_along_it(self, env):
        seen = play(env, 1, steps=6)
        moved = seen[-1].proprioception.position - seen[0].proprioception.position
        assert moved[0] > 0.0

    def test_a_step_says_whether_the_task_is_solved(self, env):
        env.reset(1)
        step = env.step(to_command(VALUES, env.control_hz, "world"))
        assert isinstance(step, EnvironmentStep)
        assert step.success in (True, False)


def test_closing_twice_is_allowed():
    env = LineEnvironment()
    env.close()
    env.close()


@pytest.mark.sim
def test_closing_the_simulator_twice_is_allowed():
    env = _libero()
    env.close()
    env.close()
