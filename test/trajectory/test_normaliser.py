import math

import numpy as np
import pytest

from heisd_ros.config import TrajectoryConfig
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.trajectory import PercentileNormaliser, fit_threshold

UNIT = PercentileNormaliser(0.0, 0.04, 0.1, 0.2)


def test_values_are_scaled_and_clipped():
    assert UNIT.apply(0.01, 0.15) == pytest.approx((0.25, 0.5))
    assert UNIT.apply(-1.0, 9.0) == (0.0, 1.0)


def test_an_infinite_radius_counts_as_one():
    assert UNIT.apply(math.inf, 0.1) == (1.0, 0.0)


def test_nan_stays_nan():
    assert math.isnan(UNIT.apply(math.nan, 0.1)[0])


def test_fit_takes_the_smallest_value_and_the_95th_percentile():
    # 0..100: the 95th percentile is 95.
    fitted = PercentileNormaliser.fit(np.arange(101.0), np.arange(101.0) * 2 + 1)
    assert fitted == PercentileNormaliser(0.0, 95.0, 1.0, 191.0)


def test_fit_leaves_out_straight_runs():
    fitted = PercentileNormaliser.fit([0.0, 1.0, math.inf], [0.0, 1.0, 2.0], percentile=100.0)
    assert fitted.radius_high == 1.0


@pytest.mark.parametrize("radii", [[], [math.inf], [0.5, 0.5]])
def test_fit_needs_values_that_vary(radii):
    with pytest.raises(DataError, match="radii"):
        PercentileNormaliser.fit(radii, [0.0, 1.0])


def test_saved_and_loaded_are_equal():
    assert PercentileNormaliser.from_dict(UNIT.to_dict()) == UNIT


def test_a_file_with_other_fields_is_refused():
    with pytest.raises(ConfigError, match="exactly"):
        PercentileNormaliser.from_dict({"radius_low": 0.0, "low": 1.0})


@pytest.mark.parametrize("high", [0.0, -1.0, math.nan, math.inf])
def test_an_empty_range_is_refused(high):
    with pytest.raises(ConfigError, match="radius range"):
        PercentileNormaliser(0.0, high, 0.0, 1.0)


def test_ranges_of_the_configuration():
    config = TrajectoryConfig(radius_low=0.01, radius_high=0.02)
    fitted = PercentileNormaliser.from_config(config)
    assert (fitted.radius_low, fitted.radius_high) == (0.01, 0.02)


def test_threshold_is_a_percentile_of_the_known_values():
    assert fit_threshold([math.nan, 0.0, 0.1, 0.2, 0.3, 0.4]) == pytest.approx(0.1)
