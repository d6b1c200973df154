"""A decoder process whose demonstrations are on a server that dies and returns."""

import signal

import numpy as np
import pytest
import yaml
from ros.robot import Robot
from ros.test_processes import START_S, end, launch  # noqa: F401
from ros_fakes import wait_until

from heisd_ros.nodes import conversions as convert
from heisd_ros.types import VisualFeatures

pytest.importorskip("torch")
pytest.importorskip("qdrant_client")

from qdrant_loopback import Loopback

from heisd_ros.build import build_target
from heisd_ros.config import make_config
from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.types import Frame

pytestmark = [pytest.mark.torch, pytest.mark.slow]
AWAY = "store_error:StoreUnavailableError"
CAMERAS = ("third_person", "wrist")


class FeatureRobot(Robot):
    """Publishes one picture's features again and again."""

    def __init__(self, context, features, fingerprint):
        super().__init__(context)
        self._features, self._fingerprint = features, fingerprint

    def publish_picture(self, stamp_ns=None):
        stamp_ns = self.time_ns()
        self.publish_pose(stamp_ns)
        features = VisualFeatures(self._features.patches, self._features.embedding, stamp_ns)
        self.inputs["embedding"].publish(
            convert.features_to_embedding(
                features, with_patches=True, cameras=CAMERAS, encoder=self._fingerprint
            )
        )

    def reasons(self, since):
        """(kind, reason) of the decisions after the first `since` reports."""
        return [(m.kind, m.reason) for _, _, m in self.reports[since:] if m.decided]


@pytest.fixture
def world(tmp_path):
    """A tiny model, features of one picture, and a server with that picture's demonstration."""
    from heisd_ros.models.tiny import make_tiny_checkpoint

    values = {
        "model.checkpoint": str(make_tiny_checkpoint(tmp_path / "tiny", views=2)),
        "model.device": "cpu",
        "model.threads": 1,
        "model.self_check": False,
        "decode.method": "r_sd",
        "arming.start": "armed",
        "retrieval.timeout_s": 1.0,
        "retrieval.pause_s": 0.2,
        # A busy machine: this test is about what arrives, not when.
        "command.image_timeout_s": 10.0,
        "command.lifetime_s": 2.0,
    }
    target = build_target(make_config(values))
    image = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    features = target.encode(tuple(Frame(image, name, 0) for name in CAMERAS))
    fingerprint = target.info.fingerprint
    profile = StoreProfile(
        fingerprint,
        len(features.embedding),
        cameras=CAMERAS,
        preprocessing={"crop_area": 1.0, "pool": "mean"},
    )
    actions = np.zeros((2, 7))
    with StoreWriter(tmp_path / "store", profile) as writer:
        writer.add_episode(
            EpisodeRows(
                "go",
                "episode",
                np.stack([features.embedding] * 2),
                actions,
                np.arange(2),
                np.zeros((2, 3)),
                np.ones(2),
            )
        )
        writer.finish()
    from heisd_ros.demonstrations.store import MemoryStore

    server = Loopback()
    export_to_qdrant(MemoryStore.open(tmp_path / "store"), server.client, "heisd")
    values["retrieval.store"] = server.url("grpc")
    tree = {}
    for name, value in values.items():
        section, _, field = name.partition(".")
        tree.setdefault(section, {})[field] = value
    path = tmp_path / "parameters.yaml"
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": tree}}))
    yield server, path, features, fingerprint
    server.stop()


def test_decisions_go_on_without_the_server_and_draft_from_it_when_it_returns(
    context,
    spin,
    launch,  # noqa: F811
    world,
):
    server, parameters, features, fingerprint = world
    process = launch("decoder_node", "--params-file", str(parameters))
    robot = FeatureRobot(context, features, fingerprint)
    spin(robot)
    assert wait_until(
        lambda: (
            all(p.get_subscription_count() for p in robot.inputs.values())
            and all(s.get_publisher_count() for s in robot.outputs)
        ),
        START_S,
    ), process.poll()
    robot.instruct("go")
    end_stream = robot.stream(5.0)
    try:
        assert wait_until(lambda: ("retrieval", "") in robot.reasons(0), 60.0), robot.reasons(0)
        server.stop()
        died = len(robot.reports)
        assert wait_until(lambda: robot.reasons(died).count(("ar", AWAY)) >= 3, 60.0)
        server.start()
        returned = len(robot.reports)
        assert wait_until(lambda: ("retrieval", "") in robot.reasons(returned), 60.0)
        assert wait_until(
            lambda: any(
                value.key == AWAY and int(value.value) >= 3
                for _, _, array in list(robot.statuses)
                for status in array.status
                for value in status.values
            ),
            30.0,
        )
    finally:
        end_stream()
    code, output = end(process, signal.SIGINT)
    assert (code, "Traceback" in output) == (0, False), output
    assert output.count("is not used") == 1, output
