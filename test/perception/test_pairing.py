import numpy as np
import pytest

from heisd_ros.errors import ConfigError, DataError
from heisd_ros.perception import FramePairer
from heisd_ros.types import Frame

MS = 1_000_000
IMAGE = np.zeros((1, 1, 3), dtype=np.uint8)


def frame(camera, stamp_ms):
    return Frame(IMAGE, camera, round(stamp_ms * MS))


def stamps(pair):
    return None if pair is None else [(item.camera, item.stamp_ns / MS) for item in pair]


def pairer():
    return FramePairer(("front", "wrist"), 20 * MS)


def test_a_set_comes_in_configured_order_whoever_was_last():
    first = pairer()
    assert first.push(frame("wrist", 100)) is None
    assert stamps(first.push(frame("front", 110))) == [("front", 110), ("wrist", 100)]
    second = pairer()
    assert second.push(frame("front", 110)) is None
    assert stamps(second.push(frame("wrist", 100))) == [("front", 110), ("wrist", 100)]


def test_tolerance_is_inclusive():
    on_edge, beyond = pairer(), pairer()
    on_edge.push(frame("front", 100))
    assert on_edge.push(frame("wrist", 120)) is not None
    beyond.push(frame("front", 100))
    assert beyond.push(frame("wrist", 120.001)) is None


def test_the_nearest_frame_is_taken_and_older_ones_are_counted():
    pairs = pairer()
    for stamp in (60, 80, 100):
        pairs.push(frame("front", stamp))
    assert stamps(pairs.push(frame("wrist", 82))) == [("front", 80), ("wrist", 82)]
    assert pairs.drops == {"unpaired": 1}
    assert stamps(pairs.push(frame("wrist", 101))) == [("front", 100), ("wrist", 101)]


def test_no_frame_is_used_twice():
    pairs = pairer()
    pairs.push(frame("front", 100))
    assert pairs.push(frame("wrist", 100)) is not None
    assert pairs.push(frame("wrist", 105)) is None


def test_one_camera_is_always_complete():
    single = FramePairer(["front"], 0)
    assert stamps(single.push(frame("front", 5))) == [("front", 5)]
    assert stamps(single.push(frame("front", 6))) == [("front", 6)]


def test_three_cameras_need_all_three():
    pairs = FramePairer(["a", "b", "c"], 20 * MS)
    assert pairs.push(frame("a", 0)) is None
    assert pairs.push(frame("c", 20)) is None
    assert pairs.push(frame("b", 10)) is not None


def test_three_cameras_must_lie_within_one_tolerance():
    # Each is within 20 ms of b, but a and c are 30 ms apart.
    pairs = FramePairer(["a", "b", "c"], 20 * MS)
    pairs.push(frame("a", 0))
    pairs.push(frame("c", 30))
    assert pairs.push(frame("b", 15)) is None


def test_a_repeated_stamp_is_dropped():
    pairs = pairer()
    pairs.push(frame("front", 100))
    assert pairs.push(frame("front", 100)) is None
    assert pairs.drops == {"duplicate": 1}


def test_time_going_back_empties_all_buffers():
    pairs = pairer()
    pairs.push(frame("wrist", 990))
    pairs.push(frame("front", 1050))
    assert pairs.push(frame("front", 980)) is None  # would have matched wrist 990
    assert pairs.drops == {"time_jumped_back": 2}
    assert stamps(pairs.push(frame("wrist", 981))) == [("front", 980), ("wrist", 981)]


def test_a_bag_played_again_gives_the_same_sets():
    pairs = pairer()
    loops = []
    for _ in range(3):
        sets = []
        for step in range(20):
            sets += [
                pairs.push(frame("front", step * 100)),
                pairs.push(frame("wrist", step * 100 + 7)),
            ]
        loops.append([stamps(item) for item in sets if item is not None])
    assert len(loops[0]) == 20
    assert loops[0] == loops[1] == loops[2]


def test_a_silent_camera_does_not_fill_the_memory():
    pairs = pairer()
    for step in range(100):
        assert pairs.push(frame("front", step)) is None
    assert pairs.drops["unpaired"] == 92
    assert pairs.push(frame("wrist", 99)) is not None


def test_clear_counts_what_it_drops():
    pairs = pairer()
    pairs.push(frame("front", 100))
    pairs.clear("deactivated")
    assert pairs.drops == {"deactivated": 1}
    assert pairs.push(frame("wrist", 100)) is None


def test_an_unknown_camera_is_refused_by_name():
    with pytest.raises(DataError, match=r"front, wrist.*'rear'"):
        pairer().push(frame("rear", 0))


@pytest.mark.parametrize(("cameras", "tolerance"), [((), 1), (("a", "a"), 1), (("a",), -1)])
def test_impossible_settings_are_refused(cameras, tolerance):
    with pytest.raises(ConfigError, match="pairing"):
        FramePairer(cameras, tolerance)
