"""LIBERO over topics: the tokens of direct calls, and an exit code that says how it went."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("libero")

from heisd_ros.build import build_environment, build_policy
from heisd_ros.command import to_command
from heisd_ros.config import load_config
from heisd_ros.share import config_file, share_dir

pytestmark = [pytest.mark.torch, pytest.mark.sim, pytest.mark.slow]
STEPS = 6


@pytest.fixture
def overrides(tmp_path):
    from heisd_ros.models.tiny import make_tiny_checkpoint

    checkpoint = make_tiny_checkpoint(tmp_path / "tiny", views=2, state_size=4)
    return {
        "model.checkpoint": str(checkpoint),
        "model.self_check": False,
        "model.threads": 1,
        "decode.method": "ar",
        "retrieval.store": "none",
        "simulation.max_steps": STEPS,
        "simulation.timeout_s": 60.0,
    }


def test_an_episode_over_topics_decodes_the_tokens_of_direct_calls(overrides, domain_id):
    from heisd_ros.nodes.heisd_node import run_composed

    config = load_config(config_file("embodiments/libero_panda.yaml"), overrides)
    decisions = []
    outcome = run_composed(config, domain_id=domain_id, on_report=decisions.append)
    assert (outcome.steps, outcome.crash) == (STEPS, "")

    policy, environment, command = build_policy(config), build_environment(config), config.command
    observation = environment.reset(0)
    for decision in decisions:
        action = policy.act(observation).action
        assert np.array_equal(decision.result.action.tokens, action.tokens)
        assert decision.guard == ()
        binary = np.append(action.values[:6], float(action.values[6] > 0.5))
        step = environment.step(
            to_command(
                binary,
                command.control_hz,
                command.frame_id,
                translation_scale=command.translation_scale,
                rotation_scale=command.rotation_scale,
            )
        )
        observation = step.observation
    environment.close()


def test_an_unsolved_episode_ends_the_process_with_one(overrides, domain_id):
    options = [
        part
        for name, value in {**overrides, "simulation.episodes": 1}.items()
        for part in ("-p", f"{name}:={str(value).lower() if isinstance(value, bool) else value}")
    ]
    code = "from heisd_ros.nodes.heisd_node import main; raise SystemExit(main())"
    embodiment = str(config_file("embodiments/libero_panda.yaml"))
    process = subprocess.run(
        [sys.executable, "-c", code, "--ros-args", "--params-file", embodiment, *options],
        cwd=share_dir(),
        env={**os.environ, "ROS_DOMAIN_ID": str(domain_id), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert process.returncode == 1, process.stderr
    assert f"failure after {STEPS} steps" in process.stderr + process.stdout
