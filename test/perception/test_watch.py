import pytest

from heisd_ros.perception.watch import CameraWatch, Silence

SECOND = 10**9
CAMERAS = ("front", "wrist")


@pytest.fixture
def watch():
    return CameraWatch(CAMERAS, SECOND // 2, 10 * SECOND)


def test_a_camera_is_silent_after_its_timeout_and_not_at_it(watch):
    watch.note("front", 7, 11 * SECOND)
    assert list(watch.silent(10 * SECOND + SECOND // 2)) == []
    assert watch.silent(11 * SECOND) == {"wrist": Silence("no_frames", 10 * SECOND, None)}
    assert watch.silent(12 * SECOND)["front"] == Silence("no_frames", 11 * SECOND, 7)


def test_a_repeated_stamp_is_no_new_picture(watch):
    watch.note("front", 7, 10 * SECOND)
    watch.note("front", 7, 11 * SECOND)
    assert watch.silent(11 * SECOND)["front"] == Silence("frozen", 10 * SECOND, 7)
    watch.note("front", 8, 12 * SECOND)
    assert "front" not in watch.silent(12 * SECOND)


def test_refused_pictures_are_the_reason_of_the_silence(watch):
    watch.refuse("wrist", "unknown_encoding")
    assert watch.silent(11 * SECOND)["wrist"].reason == "unknown_encoding"


def test_each_loss_and_each_return_is_told_once(watch):
    watch.note("front", 1, 11 * SECOND)
    lost, back = watch.changes(11 * SECOND)
    assert (list(lost), back) == (["wrist"], ())
    assert watch.changes(11 * SECOND) == ({}, ())
    watch.note("wrist", 1, 11 * SECOND)
    assert watch.changes(11 * SECOND) == ({}, ("wrist",))
    assert watch.changes(11 * SECOND) == ({}, ())


def test_a_jump_of_time_makes_no_silence_and_ends_none(watch):
    watch.note("front", 1, 20 * SECOND)
    watch.shift(60 * SECOND)
    assert list(watch.silent(80 * SECOND)) == ["wrist"]
    assert watch.silent(80 * SECOND)["wrist"].since_ns == 70 * SECOND  # still 10 s ago
    watch.shift(-75 * SECOND)
    assert list(watch.silent(5 * SECOND)) == ["wrist"]
