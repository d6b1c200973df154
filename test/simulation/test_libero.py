import builtins

import numpy as np
import pytest

from heisd_ros.command.command import to_command
from heisd_ros.errors import DataError, MissingDependencyError
from heisd_ros.protocols import Environment
from heisd_ros.simulation.libero import (
    ROTATION_SCALE,
    STAY,
    TRANSLATION_SCALE,
    LiberoEnvironment,
    to_controller_action,
)


def command_of(values):
    return to_command(
        values, 20.0, "world", translation_scale=TRANSLATION_SCALE, rotation_scale=ROTATION_SCALE
    )


def test_gripper_above_one_half_opens_which_robosuite_calls_minus_one():
    assert to_controller_action([0, 0, 0, 0, 0, 0, 1.0])[6] == -1.0
    assert to_controller_action([0, 0, 0, 0, 0, 0, 0.51])[6] == -1.0
    assert to_controller_action([0, 0, 0, 0, 0, 0, 0.5])[6] == 1.0
    assert to_controller_action([0, 0, 0, 0, 0, 0, 0.0])[6] == 1.0


def test_deltas_are_clipped_to_what_the_controller_takes():
    action = to_controller_action([2, -2, 0.5, 0, 1.5, -0.25, 0])
    assert action.tolist() == [1.0, -1.0, 0.5, 0.0, 1.0, -0.25, 1.0]


@pytest.mark.parametrize("values", [[0.0] * 6, [0.0] * 8, [np.nan] + [0.0] * 6, [np.inf] * 7])
def test_an_action_of_wrong_length_or_not_finite_is_refused(values):
    with pytest.raises(DataError, match="7 finite values"):
        to_controller_action(values)


def test_without_libero_the_message_carries_the_install_line(monkeypatch):
    real = builtins.__import__

    def without_libero(name, *args, **kwargs):
        if name.split(".")[0] == "libero":
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_libero)
    with pytest.raises(MissingDependencyError, match=r"pip install 'heisd_ros\[sim\]'"):
        LiberoEnvironment("libero_spatial", 0)


@pytest.fixture(scope="module")
def scene():
    pytest.importorskip("libero", reason="LIBERO is not installed")
    with LiberoEnvironment("libero_spatial", 7, image_size=64, official=False) as env:
        yield env


def play(env, seed):
    """Return state and pictures after five random steps."""
    env.reset(seed)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        env.advance(rng.uniform(-1, 1, 7))
    step = env.step_action(rng.uniform(-1, 1, 7))
    return env.state(), [frame.image for frame in step.observation.frames]


@pytest.mark.sim
class TestLibero:
    def test_is_an_environment(self, scene):
        assert isinstance(scene, Environment)
        assert scene.control_hz == 20.0
        assert scene.instruction == "pick up the black bowl on the stove and place it on the plate"

    def test_same_seed_is_the_same_episode_bit_for_bit_whatever_ran_before(self, scene):
        np.random.seed(1)  # noqa: NPY002  the samplers' generator must not matter
        state, pictures = play(scene, 3)
        other_state, _ = play(scene, 4)
        again, pictures_again = play(scene, 3)
        assert np.array_equal(state, again)
        assert all(np.array_equal(a, b) for a, b in zip(pictures, pictures_again, strict=True))
        assert not np.array_equal(state, other_state)

    def test_global_numpy_generator_is_left_alone(self, scene):
        np.random.seed(5)  # noqa: NPY002
        wanted = np.random.RandomState(5).rand()
        scene.reset(9)
        assert np.random.rand() == wanted  # noqa: NPY002

    def test_the_bowl_on_the_stove_stands_on_the_stove(self, scene):
        # Showed as a bowl that fell behind the table: the sampler read the region of a stove that
        # had already been moved.
        for seed in (1, 2):
            scene.reset(seed)
            bowl, _ = scene.goal_objects
            apart = scene.position_of(bowl) - scene.position_of("flat_stove_1_cook_region")
            assert np.linalg.norm(apart[:2]) < 0.03
            assert 0.0 < apart[2] < 0.05

    def test_twist_does_what_the_action_does(self, scene):
        values = np.array([0.4, -0.3, 0.2, 0.1, 0.0, -0.2, 0.0])
        scene.reset(1)
        scene.step_action(values)
        by_action = scene.state()
        scene.reset(1)
        scene.step(command_of(values))
        # One division by 20 * 0.05 and one multiplication: equal up to rounding.
        assert np.allclose(scene.state(), by_action, rtol=0, atol=1e-9)

    def test_the_hand_moves_along_the_commanded_axis(self, scene):
        scene.reset(1)
        before = scene.end_effector().position
        for _ in range(10):
            step = scene.step(command_of([0, 1.0, 0, 0, 0, 0, 1]))
        moved = step.observation.proprioception.position - before
        assert moved[1] > 0.05
        assert abs(moved[0]) < 0.01
        assert abs(moved[2]) < 0.01

    def test_gripper_closes_and_opens(self, scene):
        observation = scene.reset(1)
        assert observation.proprioception.gripper_opening > 0.9
        close = STAY * [1, 1, 1, 1, 1, 1, 0]
        for _ in range(12):
            observation = scene.step(command_of(close)).observation
        assert observation.proprioception.gripper_opening < 0.1
        for _ in range(12):
            observation = scene.step(command_of(STAY)).observation
        assert observation.proprioception.gripper_opening > 0.9

    def test_frames_are_upright_and_named(self, scene):
        frames = scene.reset(1).frames
        assert [frame.camera for frame in frames] == ["third_person", "wrist"]
        picture = frames[0].image
        assert picture.shape == (64, 64, 3)
        assert picture.dtype == np.uint8
        # Grey wall above, wooden table (more red than blue) below.
        wall, table = picture[2:12, 45:60].mean((0, 1)), picture[-10:, 45:60].mean((0, 1))
        assert abs(wall[0] - wall[2]) < 10
        assert table[0] - table[2] > 20

    def test_stamps_are_simulated_time(self, scene):
        first = scene.reset(1)
        second = scene.step_action(STAY).observation
        assert second.stamp_ns - first.stamp_ns == pytest.approx(50_000_000, abs=1000)
        assert second.frames[0].stamp_ns == second.proprioception.stamp_ns == second.stamp_ns

    def test_unknown_object_is_refused_with_the_known_ones(self, scene):
        with pytest.raises(DataError, match="plate_1"):
            scene.position_of("teapot")


@pytest.mark.sim
def test_unknown_suite_and_task_are_refused():
    pytest.importorskip("libero", reason="LIBERO is not installed")
    with pytest.raises(DataError, match="libero_spatial"):
        LiberoEnvironment("libero_nowhere", 0)
    with pytest.raises(DataError, match=r"0\.\.9"):
        LiberoEnvironment("libero_spatial", 10)
