"""A decoder that is cleaned up holds nothing of its model any more when GPU memory is freed."""

import gc
import weakref

import numpy as np
import pytest
from ros_fakes import wait_until

from heisd_ros.build import build_components
from heisd_ros.config import make_config
from heisd_ros.decode.policy import HeisdPolicy
from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.types import Frame, Observation, Proprioception

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CAMERAS = ("third_person", "wrist")


def observation(now_ns):
    image = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    frames = tuple(Frame(image, camera, now_ns) for camera in CAMERAS)
    pose = Proprioception(np.array([0.4, 0.0, 0.3]), np.array([0, 0, 0, 1.0]), 1.0, now_ns)
    return Observation(frames, pose, "pick it", stamp_ns=now_ns)


@pytest.fixture
def config(tmp_path):
    """A tiny model, and a store with one step."""
    from heisd_ros.models.tiny import make_tiny_checkpoint

    values = {
        "model.checkpoint": str(make_tiny_checkpoint(tmp_path / "tiny", views=2)),
        "model.device": "cpu",
        "decode.method": "r_sd",
        "retrieval.store": str(tmp_path / "store"),
        "command.image_timeout_s": 10.0,
        "arming.start": "armed",
    }
    parts = build_components(make_config({**values, "retrieval.store": "none"}))
    embedding = parts.encoder.encode(observation(0).frames).embedding
    profile = StoreProfile(
        parts.target.info.fingerprint,
        len(embedding),
        cameras=CAMERAS,
        preprocessing={"crop_area": 1.0, "pool": "mean"},
        created_by="test",
    )
    with StoreWriter(tmp_path / "store", profile) as writer:
        rows = EpisodeRows(
            "pick it",
            "episode",
            embedding[np.newaxis],
            np.array([[0.01, 0, 0, 0, 0, 0, 1.0]]),
            np.arange(1),
            np.zeros((1, 3)),
            np.ones(1),
        )
        writer.add_episode(rows)
        writer.finish()
    return make_config(values)


def heavy():
    """Everything alive that is large, or holds what is."""
    from heisd_ros.models.openvla import OpenVlaTarget

    kinds = (HeisdPolicy, OpenVlaTarget, MemoryStore, torch.nn.Module, torch.Tensor)
    return [item for item in gc.get_objects() if issubclass(type(item), kinds)]


def test_model_store_and_buffers_are_gone_before_the_memory_of_the_gpu_is_freed(
    context, spin, config, monkeypatch
):
    gc.collect()
    before = {id(item) for item in heavy()}
    decoder = spin(DecoderNode(config=config, context=context))
    now_ns = decoder.get_clock().now().nanoseconds
    reports = []
    decoder._loop.instruct("pick it")
    decoder._on_decision = lambda decision: reports.append(decision.result is not None)
    loop = decoder._loop
    loop._worker.submit(lambda loop=loop: loop._act(observation(now_ns)))
    del loop
    assert wait_until(lambda: reports == [True], 60.0)  # now the buffers of a decision exist too
    gc.collect()
    made = [weakref.ref(item) for item in heavy() if id(item) not in before]
    assert {HeisdPolicy, MemoryStore} <= {type(ref()) for ref in made}
    assert sum(isinstance(ref(), torch.Tensor) for ref in made) > 20
    freed = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda,
        "empty_cache",
        lambda: freed.append([type(ref()) for ref in made if ref() is not None]),
    )
    decoder.executor.create_task(decoder.trigger_deactivate)
    assert wait_until(lambda: decoder.state == "inactive", 60.0)
    decoder.executor.create_task(decoder.trigger_cleanup)
    assert wait_until(lambda: freed, 60.0)
    assert freed == [[]]
    assert wait_until(lambda: decoder.state == "unconfigured", 60.0)
