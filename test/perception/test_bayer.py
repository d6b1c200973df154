import numpy as np
import pytest

from heisd_ros.perception.bayer import RED_SITES, demosaic


def mosaic_of(picture, pattern):
    """Keep one colour per pixel, as the sensor does."""
    row, column = RED_SITES[pattern]
    mosaic = picture[..., 1].copy()
    mosaic[row::2, column::2] = picture[row::2, column::2, 0]
    mosaic[1 - row :: 2, 1 - column :: 2] = picture[1 - row :: 2, 1 - column :: 2, 2]
    return mosaic


@pytest.mark.parametrize("pattern", list(RED_SITES))
def test_a_flat_colour_comes_back_exactly(pattern):
    picture = np.full((6, 8, 3), (200, 90, 17), dtype=np.uint8)
    assert (demosaic(mosaic_of(picture, pattern), pattern) == picture).all()


@pytest.mark.parametrize("pattern", list(RED_SITES))
def test_a_colour_ramp_comes_back_inside_the_border(pattern):
    # Bilinear interpolation is exact on a linear ramp.
    rows, columns = np.mgrid[0:8, 0:10]
    picture = np.stack([10 * rows, 8 * columns, 5 * (rows + columns)], axis=2).astype(np.uint8)
    result = demosaic(mosaic_of(picture, pattern), pattern)
    assert (result[1:-1, 1:-1] == picture[1:-1, 1:-1]).all()


def test_what_the_sensor_saw_is_kept():
    mosaic = np.random.default_rng(0).integers(0, 256, (6, 6), dtype=np.uint8)
    result = demosaic(mosaic, "rggb")
    assert (result[0::2, 0::2, 0] == mosaic[0::2, 0::2]).all()
    assert (result[0::2, 1::2, 1] == mosaic[0::2, 1::2]).all()
    assert (result[1::2, 1::2, 2] == mosaic[1::2, 1::2]).all()


def test_a_single_bright_pixel_spreads_to_its_neighbours_only():
    mosaic = np.zeros((6, 6), dtype=np.uint8)
    mosaic[2, 2] = 200  # a red site of rggb
    red = demosaic(mosaic, "rggb")[..., 0]
    assert red[1:4, 1:4].tolist() == [[50, 100, 50], [100, 200, 100], [50, 100, 50]]
    assert red.sum() == 800
