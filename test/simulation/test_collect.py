import numpy as np
import pytest

from heisd_ros.demonstrations.episode import Episode, load_episode, save_episode
from heisd_ros.errors import DataError
from heisd_ros.simulation.collect import CollectionPlan, Disturbance, collect, record_episode
from heisd_ros.simulation.expert import Advice, Mode
from heisd_ros.simulation.libero import LiberoEnvironment

FAR = np.full(3, 9.0)


def advice(mode=Mode.APPROACH, *, hold_still=False, grasp_point=FAR):
    values = np.array([0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    return Advice(values, mode, hold_still, grasp_point, FAR)


def disturbances(steps, **kwargs):
    noise = Disturbance(np.random.default_rng(0), 0.2)
    given = advice(**kwargs)
    return np.array([noise.apply(given, np.zeros(3)) - given.values for _ in range(steps)])


def test_disturbance_never_touches_the_gripper_and_stays_in_range():
    noise = Disturbance(np.random.default_rng(0), 5.0)
    executed = np.array([noise.apply(advice(), np.zeros(3)) for _ in range(50)])
    assert (executed[:, 6] == 1.0).all()
    assert np.abs(executed[:, :6]).max() == 1.0


def test_disturbance_has_the_declared_spread_and_memory():
    y = disturbances(4000)[:, 1]
    # Variance of n = 0.7 n + 0.7 e is 0.49 / (1 - 0.49) = 0.96; correlation 0.7.
    assert y.std() == pytest.approx(0.2 * 0.98, rel=0.1)
    assert np.corrcoef(y[1:], y[:-1])[0, 1] == pytest.approx(0.7, abs=0.05)


def test_disturbance_is_halved_close_to_the_grasp():
    far, near = disturbances(20), disturbances(20, grasp_point=np.full(3, 0.01))
    assert np.allclose(near[:, 1], far[:, 1] / 2)


def test_a_resting_gripper_does_not_execute_the_lift():
    noise = Disturbance(np.random.default_rng(0), 0.0)
    still = noise.apply(advice(Mode.CARRY, hold_still=True), np.zeros(3))
    assert still.tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_a_set_made_with_another_seed_is_not_completed(tmp_path):
    old = CollectionPlan("libero_spatial", seed=1)
    episode = Episode(
        images=np.zeros((1, 1, 2, 2, 3), np.uint8),
        actions=np.zeros((1, 7), np.float32),
        state=np.zeros((1, 8), np.float32),
        instruction="x",
        cameras=("wrist",),
        control_hz=20.0,
        source=old.facts(),
    )
    save_episode(old.path(tmp_path, 0, 0), episode)
    with pytest.raises(DataError, match="'seed': '1'"):
        collect(CollectionPlan("libero_spatial", seed=2), [0], [0, 1], tmp_path)
    assert collect(old, [0], [0], tmp_path).frames == 0  # nothing is missing: no simulator either


@pytest.mark.sim
def test_expert_solves_an_official_start_and_its_record_can_be_replayed(tmp_path):
    pytest.importorskip("libero", reason="LIBERO is not installed")
    plan = CollectionPlan("libero_spatial", seed=3, image_size=32, noise=0.1)
    with LiberoEnvironment("libero_spatial", 0, image_size=32) as env:
        env.reset = _ignoring_the_seed(env.reset)  # official initial state 0
        episode = record_episode(env, plan, 0, 0)
    assert episode.success
    assert 40 < len(episode) < 120
    save_episode(plan.path(tmp_path, 0, 0), episode)
    stored = load_episode(plan.path(tmp_path, 0, 0))
    modes = stored.privileged["mode"].tolist()
    first = [modes.index(mode) for mode in (Mode.APPROACH, Mode.CLOSE, Mode.CARRY)]
    assert first == sorted(first)
    assert (stored.actions[stored.privileged["mode"] == Mode.CARRY, 6] == 0).all()
    assert (stored.actions[stored.privileged["mode"] == Mode.APPROACH, 6] == 1).all()
    resting = stored.privileged["hold_still"]
    assert 3 <= resting.sum() <= 24
    assert (stored.actions[resting, 2] > 0.5).all()  # the label lifts ...
    assert np.abs(stored.privileged["executed"][resting, 2]).max() < 0.5  # ... the hand rests


def _ignoring_the_seed(reset):
    return lambda seed: reset(0)
