"""The hybrid boundary: strict threshold, hysteresis, dwell."""

from fakes import some_metric

from heisd_ros.decode.selector import BoundarySelector
from heisd_ros.types import DraftKind

R, D, AR = DraftKind.RETRIEVAL, DraftKind.DRAFTER, DraftKind.AR


def modes(selector, *fused):
    return [selector.select(some_metric(f)) for f in fused]


def test_fast_and_straight_motion_retrieves_and_the_threshold_is_strict():
    assert modes(BoundarySelector(0.2), 0.21, 0.2, 0.19) == [R, D, D]


def test_too_short_a_window_is_autoregressive():
    selector = BoundarySelector(0.2)
    assert selector.select(some_metric(0.9, samples=2)) is AR
    assert selector.select(some_metric(float("nan"))) is AR


def test_hysteresis_keeps_retrieval_until_the_lower_threshold():
    # Entered above 0.20, left at or below 0.18.
    selector = BoundarySelector(0.2, hysteresis=0.9)
    assert modes(selector, 0.25, 0.19, 0.181, 0.18, 0.19) == [R, R, R, D, D]


def test_dwell_holds_a_mode_for_its_fewest_steps():
    assert modes(BoundarySelector(0.2, dwell=2), 0.3, 0.1, 0.1, 0.3, 0.3) == [R, R, D, D, R]


def test_reset_forgets_the_mode():
    selector = BoundarySelector(0.2, dwell=5)
    modes(selector, 0.3)
    selector.reset()
    assert modes(selector, 0.1) == [D]
