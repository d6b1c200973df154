"""Real nodes in processes of their own, over DDS, with a tiny checkpoint and command line."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import yaml
from heisd_ros.msg import TrajectoryMetric, VisualEmbedding
from ros.robot import Robot, speed_of
from ros_fakes import wait_until
from sensor_msgs.msg import Image

from heisd_ros.nodes import qos
from heisd_ros.nodes.conversions import frame_to_image
from heisd_ros.share import share_dir
from heisd_ros.types import Frame

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

START_S = 120.0
"""Three interpreters that import torch on a busy machine."""


class CameraRobot(Robot):
    """The robot of the other tests with cameras instead of features."""

    def __init__(self, context):
        super().__init__(context)
        del self.inputs["embedding"]
        self.embeddings, self.metrics = [], []
        for kind, topic, kept in (
            (VisualEmbedding, "embedding", self.embeddings),
            (TrajectoryMetric, "trajectory_metric", self.metrics),
        ):
            self.outputs.append(self.create_subscription(kind, topic, self._keeper(kept), 50))
        for camera in ("third_person", "wrist"):
            self.inputs[camera] = self.create_publisher(Image, f"{camera}/image", qos.SENSOR)

    def publish_picture(self, stamp_ns=None):
        stamp_ns = self.time_ns()
        self.publish_pose(stamp_ns)
        for camera in ("third_person", "wrist"):
            image = np.random.default_rng(stamp_ns).integers(0, 255, (64, 64, 3), np.uint8)
            self.inputs[camera].publish(frame_to_image(Frame(image, camera, stamp_ns), camera))


@pytest.fixture
def parameters(tmp_path):
    from heisd_ros.models.tiny import make_tiny_checkpoint

    values = {
        "model": {
            "checkpoint": str(make_tiny_checkpoint(tmp_path / "tiny", views=1)),
            "threads": 1,
            "self_check": False,
        },
        "decode": {"method": "ar"},
        "retrieval": {"store": "none"},
        "arming": {"start": "armed"},
        # A busy machine: this test is about what arrives, not when.
        "command": {"image_timeout_s": 10.0, "lifetime_s": 2.0},
    }
    path = tmp_path / "parameters.yaml"
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": values}}))
    return path


@pytest.fixture
def launch(domain_id):
    """Start a node as a process; killed at the end if it is still there."""
    started = []

    def start(executable, *arguments):
        code = f"from heisd_ros.nodes.{executable} import main; raise SystemExit(main())"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "--ros-args", *arguments],
            cwd=share_dir(),
            env={**os.environ, "ROS_DOMAIN_ID": str(domain_id), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def end(process, number):
    """Send a signal; return exit code and output."""
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    return process.returncode, output


def test_three_processes_turn_pictures_into_guarded_commands_and_end_at_rest(
    context, spin, launch, parameters
):
    names = ("perception_node", "trajectory_node", "decoder_node")
    processes = {name: launch(name, "--params-file", str(parameters)) for name in names}
    robot = CameraRobot(context)
    spin(robot)
    assert wait_until(
        lambda: (
            all(p.get_subscription_count() for p in robot.inputs.values())
            and all(s.get_publisher_count() for s in robot.outputs)
        ),
        START_S,
    ), {name: process.poll() for name, process in processes.items()}
    robot.instruct("pick up the bowl")
    end_stream = robot.stream(5.0)
    assert wait_until(lambda: sum(report.decided for _, _, report in robot.reports) >= 3, 60.0)

    embedding = robot.embeddings[-1][2]
    assert np.linalg.norm(embedding.embedding) == pytest.approx(1.0, abs=1e-5)
    assert len(embedding.data) == embedding.views * embedding.patches * embedding.channels > 0
    assert embedding.encoder
    assert robot.metrics[-1][2].samples >= 3
    report = next(m for _, _, m in robot.reports if m.decided)
    assert (report.kind, report.forwards, report.instruction) == ("ar", 7, "pick up the bowl")
    assert all(31744 <= token < 32000 for token in report.tokens)
    assert "total" in report.stage
    for _, _, twist in robot.twists:
        assert speed_of(twist) <= 0.25 + 1e-12  # command.max_linear
        assert twist.header.frame_id == "base"
    assert any(speed_of(twist) > 0.0 for _, _, twist in robot.twists)

    code, output = end(processes["decoder_node"], signal.SIGINT)
    assert (code, "Traceback" in output) == (0, False), output
    end_stream()
    assert speed_of(robot.twists[-1][2]) == 0.0
    for name in ("perception_node", "trajectory_node"):
        code, output = end(processes[name], signal.SIGTERM)
        assert (code, "Traceback" in output) == (0, False), output


def test_a_missing_checkpoint_is_one_sentence_and_an_exit_code_if_so_configured(launch):
    settings = ("model.checkpoint:=/nowhere", "ros.on_failed_start:=exit")
    process = launch("decoder_node", *(part for value in settings for part in ("-p", value)))
    output, _ = process.communicate(timeout=START_S)
    assert process.returncode == 2
    assert "no checkpoint folder at /nowhere" in output
    assert "Traceback" not in output


def test_a_misspelt_parameter_is_told_with_the_nearest_name_and_the_process_waits(launch):
    process = launch("trajectory_node", "-p", "trajectory.windw:=20")
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "configure again" in line:
            break
    assert any("did you mean 'trajectory.window'" in line for line in lines), lines
    code, output = end(process, signal.SIGTERM)
    assert (code, "Traceback" in output) == (0, False), output
