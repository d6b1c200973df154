import numpy as np
import pytest

from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.perception import centre_crop, prepare_image, resize, rotate

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


@pytest.fixture
def corners():
    image = np.zeros((256, 256, 3), dtype=np.uint8)
    image[0, 0], image[0, 255], image[255, 0], image[255, 255] = RED, GREEN, BLUE, WHITE
    return image


def corner_colours(image):
    return [tuple(int(v) for v in image[row, column]) for row in (0, -1) for column in (0, -1)]


def test_half_a_turn_puts_the_first_corner_last(corners):
    assert corner_colours(rotate(corners, 180)) == [WHITE, BLUE, GREEN, RED]


def test_a_quarter_turn_is_counter_clockwise(corners):
    assert corner_colours(rotate(corners, 90)) == [GREEN, WHITE, RED, BLUE]
    assert corner_colours(rotate(corners, 270)) == [BLUE, RED, WHITE, GREEN]
    assert (rotate(corners, 0) == corners).all()


def test_other_angles_are_refused(corners):
    for angle in (45, -90, 360):
        with pytest.raises(ConfigError, match="270"):
            rotate(corners, angle)


def test_crop_is_by_area_not_by_side():
    rows = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None, None], (256, 256, 3))
    cropped = centre_crop(rows, 0.9)
    assert cropped.shape == (243, 243, 3)  # 256 sqrt(0.9) = 242.9
    assert cropped[0, 0, 0] == 6  # (256 - 243) // 2
    assert cropped[-1, 0, 0] == 248


def test_the_whole_area_is_the_whole_picture(corners):
    assert (centre_crop(corners, 1.0) == corners).all()


def test_a_small_crop_of_a_small_picture_keeps_a_pixel():
    assert centre_crop(np.zeros((2, 2, 3), dtype=np.uint8), 0.01).shape == (1, 1, 3)


@pytest.mark.parametrize("area", [0.0, -0.1, 1.1, float("nan")])
def test_an_impossible_area_is_refused(corners, area):
    with pytest.raises(ConfigError, match="area"):
        centre_crop(corners, area)


def test_resize_keeps_flat_colours():
    flat = np.full((48, 64, 3), (10, 200, 30), dtype=np.uint8)
    resized = resize(flat, 224, 112)
    assert resized.shape == (224, 112, 3)
    assert (resized == (10, 200, 30)).all()


def test_the_whole_chain(corners):
    prepared = prepare_image(corners, rotate_deg=180, crop_area=0.9, size=224)
    assert prepared.shape == (224, 224, 3)
    assert prepared.dtype == np.uint8
    assert prepared.flags.c_contiguous
    upright = prepare_image(corners, rotate_deg=180, size=256)
    assert corner_colours(upright) == [WHITE, BLUE, GREEN, RED]


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4), dtype=np.uint8),
        np.zeros((4, 4, 4), dtype=np.uint8),
        np.zeros((4, 4, 3), dtype=np.float32),
        np.zeros((0, 4, 3), dtype=np.uint8),
    ],
)
def test_only_rgb_pictures_are_taken(image):
    for operation in (
        lambda: rotate(image, 90),
        lambda: centre_crop(image, 0.5),
        lambda: resize(image, 2, 2),
    ):
        with pytest.raises(ShapeError, match="uint8"):
            operation()


def test_an_empty_size_is_refused(corners):
    with pytest.raises(ConfigError, match="positive"):
        resize(corners, 0, 224)
