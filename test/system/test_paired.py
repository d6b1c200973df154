"""Lossless decoding is the same episode: exact acceptance against autoregression in LIBERO."""

import numpy as np
import pytest

from heisd_ros.build import build_components, build_policy
from heisd_ros.config import load_config, replace
from heisd_ros.share import config_file, weights_dir
from heisd_ros.simulation.rollout import rollout

pytest.importorskip("torch")
pytest.importorskip("libero.libero", reason="LIBERO is not installed: pip install 'heisd_ros[sim]'")
pytestmark = [pytest.mark.sim, pytest.mark.torch]

STEPS = 40


class Recorded:
    """An environment that writes down the whole physical state before every command."""

    def __init__(self, environment):
        self.environment, self.states = environment, []
        self.instruction, self.control_hz = environment.instruction, environment.control_hz

    def reset(self, seed):
        return self.environment.reset(seed)

    def step(self, command):
        self.states.append(self.environment.state().copy())
        return self.environment.step(command)


@pytest.fixture(scope="module")
def environment():
    from heisd_ros.simulation.libero import LiberoEnvironment

    with LiberoEnvironment("libero_spatial", 0, image_size=96) as env:
        yield env


@pytest.fixture(scope="module")
def config():
    if not (weights_dir() / "small_vla").is_dir():
        pytest.fail("the shipped checkpoint weights/small_vla is missing")
    return replace(
        load_config(config_file("embodiments/libero_panda.yaml")), decode__method="heisd_lossless"
    )


def play(environment, config, method, parts):
    recorded = Recorded(environment)
    policy = build_policy(replace(config, decode__method=method), parts)
    outcome = rollout(recorded, policy, seed=3, max_steps=STEPS)
    assert not outcome.crash, outcome.crash
    return np.array(recorded.states), outcome


def test_lossless_heisd_plays_the_episode_of_autoregression_state_by_state(environment, config):
    parts = build_components(config)
    states, plain = play(environment, config, "ar", parts)
    lossless_states, lossless = play(environment, config, "heisd_lossless", parts)
    assert states.shape == lossless_states.shape == (STEPS, states.shape[1])
    assert np.array_equal(states, lossless_states)
    assert np.ptp(states, axis=0).max() > 0.01  # the arm did move
    forwards = [sum(report.forwards for report in o.reports) for o in (plain, lossless)]
    assert forwards[0] == 7 * STEPS
    assert forwards[1] < forwards[0]
