"""What every vision encoder promises; the fake of the node tests is held to it too."""

import numpy as np
import pytest
from ros_fakes import FakeEncoder

from heisd_ros.errors import DataError
from heisd_ros.perception.prepare import PreparingEncoder
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Frame


@pytest.fixture(scope="module")
def openvla(tmp_path_factory):
    pytest.importorskip("torch")
    from heisd_ros.models.openvla import OpenVlaTarget
    from heisd_ros.models.tiny import make_tiny_checkpoint

    folder = make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
    return OpenVlaTarget.from_pretrained(folder, "cpu")


@pytest.fixture(params=["fake", "openvla", "prepared"])
def encoder(request):
    if request.param == "fake":
        return FakeEncoder()
    openvla = request.getfixturevalue("openvla")
    return openvla if request.param == "openvla" else PreparingEncoder(openvla, 180, 0.9)


def frames(seed, stamps=(5, 3)):
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 256, (len(stamps), 48, 64, 3), dtype=np.uint8)
    cameras = ("third_person", "wrist")
    return [Frame(p, c, t) for p, c, t in zip(pictures, cameras, stamps, strict=False)]


class TestVisionEncoder:
    def test_implements_the_protocol(self, encoder):
        assert isinstance(encoder, VisionEncoder)

    def test_embedding_is_a_unit_vector_of_one_length(self, encoder):
        lengths = set()
        for seed in range(3):
            embedding = encoder.encode(frames(seed)).embedding
            assert embedding.dtype == np.float32
            assert np.linalg.norm(embedding) == pytest.approx(1.0, abs=1e-4)
            lengths.add(embedding.shape)
        assert len(lengths) == 1

    def test_patches_are_views_by_patches_by_channels(self, encoder):
        assert len(encoder.encode(frames(0)).patches.shape) == 3

    def test_stamp_is_that_of_the_oldest_frame(self, encoder):
        assert encoder.encode(frames(0, (5, 3))).stamp_ns == 3
        assert encoder.encode(frames(0, (2, 3))).stamp_ns == 2

    def test_same_pictures_give_the_same_features(self, encoder):
        first, again = encoder.encode(frames(1)), encoder.encode(frames(1))
        assert np.array_equal(first.embedding, again.embedding)
        assert np.array_equal(np.asarray(first.patches), np.asarray(again.patches))

    def test_other_pictures_give_other_patches(self, encoder):
        first, other = encoder.encode(frames(1)), encoder.encode(frames(2))
        assert not np.array_equal(np.asarray(first.patches), np.asarray(other.patches))

    def test_a_picture_is_not_changed(self, encoder):
        shown = frames(1)
        before = [frame.image.copy() for frame in shown]
        encoder.encode(shown)
        assert all(np.array_equal(f.image, b) for f, b in zip(shown, before, strict=True))


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("shape", [(48, 64), (48, 64, 4)])
def test_what_is_no_colour_picture_is_refused(openvla, prepared, shape):
    encoder = PreparingEncoder(openvla, 180, 0.9) if prepared else openvla
    bad = [Frame(np.zeros(shape, np.uint8), "third_person", 0)] * 2
    with pytest.raises(DataError):
        encoder.encode(bad)
