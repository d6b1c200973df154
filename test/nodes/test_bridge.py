import sys
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("rclpy")

from sensor_msgs.msg import Image

from heisd_ros.nodes import bridge
from heisd_ros.nodes.conversions import image_to_frame, to_array
from heisd_ros.perception.images import ImageError

PIXELS = [1, 2, 3, 4, 5, 6]


def message(encoding, data=PIXELS):
    return Image(height=1, width=2, encoding=encoding, step=6, data=to_array("B", data))


@pytest.fixture
def fake_bridge(monkeypatch):
    """A cv_bridge that counts its calls and swaps bgr as the real one does."""
    calls = []

    class CvBridge:
        def imgmsg_to_cv2(self, picture, wanted):
            calls.append(picture.encoding)
            if len(picture.data) < picture.step * picture.height:
                raise TypeError("buffer is too small")
            rows = np.frombuffer(picture.data, np.uint8).reshape(1, 2, 3)
            return rows if picture.encoding == wanted else rows[:, :, ::-1]

    module = ModuleType("cv_bridge")
    module.CvBridge = CvBridge
    monkeypatch.setitem(sys.modules, "cv_bridge", module)
    bridge._bridge.cache_clear()
    yield calls
    bridge._bridge.cache_clear()


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8"])
def test_with_and_without_cv_bridge_the_picture_is_the_same(fake_bridge, monkeypatch, encoding):
    with_bridge = image_to_frame(message(encoding), "wrist").image
    assert fake_bridge == [encoding]
    monkeypatch.setitem(sys.modules, "cv_bridge", None)
    bridge._bridge.cache_clear()
    assert np.array_equal(image_to_frame(message(encoding), "wrist").image, with_bridge)


def test_encodings_where_both_could_differ_are_always_our_own(fake_bridge):
    assert bridge.decode_with_cv_bridge(message("nv12")) is None
    assert fake_bridge == []


def test_a_malformed_picture_gets_our_own_reason(fake_bridge):
    with pytest.raises(ImageError) as caught:
        image_to_frame(message("rgb8", [1, 2]), "wrist")
    assert caught.value.reason == "short_data"


def test_a_cv_bridge_built_for_another_numpy_is_left_alone(monkeypatch):
    broken = ModuleType("cv_bridge")  # imports, but has no CvBridge
    monkeypatch.setitem(sys.modules, "cv_bridge", broken)
    bridge._bridge.cache_clear()
    assert image_to_frame(message("rgb8"), "wrist").image.tolist() == [[[1, 2, 3], [4, 5, 6]]]
    bridge._bridge.cache_clear()
