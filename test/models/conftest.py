import numpy as np
import pytest

pytest.importorskip("torch")

from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tiny import make_tiny_checkpoint
from heisd_ros.types import Frame


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A tiny checkpoint folder; copy it before changing it."""
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def target(checkpoint):
    return OpenVlaTarget.from_pretrained(checkpoint, "cpu")


@pytest.fixture(scope="session")
def picture():
    def make(seed):
        return np.random.default_rng(seed).integers(0, 256, (64, 48, 3), dtype=np.uint8)

    return make


@pytest.fixture(scope="session")
def frame(picture):
    def make(seed, camera="third_person", stamp_ns=0):
        return Frame(picture(seed), camera, stamp_ns)

    return make
