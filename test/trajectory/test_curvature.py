import math

import numpy as np
import pytest

from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.trajectory import curvature_radius, fit_centre, project_to_plane

INF = math.inf
METHODS = ["centroid", "taubin", "lsq"]
RADII = [
    # window, centroid, taubin, lsq
    ("straight", 0.03733, INF, INF),
    ("straight_w5", 0.01200, INF, INF),
    ("full_turn", 0.0500, 0.0500, 0.0500),
    ("arc_180", 0.03822, 0.0500, 0.0500),
    ("arc_90", 0.02077, 0.0500, 0.0500),
    ("arc_30", 0.00701, 0.0500, 0.0500),
    ("wide_arc_90", 0.08309, 0.2000, 0.2000),
    ("stationary", 0.0, 0.0, 0.0),
    ("round_trip", 0.01884, INF, INF),
    ("corner", 0.03188, 0.0446, 0.0447),
    ("helix", 0.05576, 0.0560, 0.0560),
]


@pytest.mark.parametrize(("name", "centroid", "taubin", "lsq"), RADII)
def test_worked_radii(windows, name, centroid, taubin, lsq):
    for method, expected in zip(METHODS, (centroid, taubin, lsq), strict=True):
        assert curvature_radius(windows[name], method) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("samples", "factor"), [(5, 1.2), (15, 56 / 15)])
def test_centroid_radius_of_a_straight_run_in_closed_form(samples, factor):
    # s (n^2 - 1) / (4 n) for odd n
    line = 0.003 * np.arange(samples)[:, None] * np.array([[2.0, -1.0, 2.0]]) / 3.0
    assert curvature_radius(line) == pytest.approx(0.003 * factor, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["straight", "arc_30", "corner", "helix", "round_trip"])
def test_radius_does_not_depend_on_the_frame(windows, rotation, name, method):
    moved = windows[name] @ rotation.T + np.array([0.4, -2.0, 1.3])
    expected = curvature_radius(windows[name], method)
    assert curvature_radius(moved, method) == pytest.approx(expected, rel=1e-6)
    assert curvature_radius(windows[name][:, [2, 0, 1]], method) == pytest.approx(
        expected, rel=1e-6
    )


@pytest.mark.parametrize("method", METHODS)
def test_radius_scales_with_the_window(windows, method):
    small = curvature_radius(windows["corner"], method)
    assert curvature_radius(100.0 * windows["corner"], method) == pytest.approx(
        100 * small, rel=1e-6
    )


@pytest.mark.parametrize("method", METHODS)
def test_fewer_than_three_points_have_no_radius(windows, method):
    for samples in range(3):
        assert curvature_radius(windows["arc_90"][:samples], method) == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_tiny_noise_on_a_still_arm_gives_a_tiny_finite_radius(method):
    noise = np.random.default_rng(0).normal(0.0, 1e-9, (15, 3))
    assert 0.0 <= curvature_radius(noise + 0.5, method) < 1e-6


def test_noise_on_a_straight_run_keeps_the_fitted_radius_large(windows):
    rng = np.random.default_rng(0)
    for _ in range(50):
        noisy = windows["straight"] + rng.normal(0.0, 1e-3, (15, 3))
        assert curvature_radius(noisy, "taubin") > 0.5
        assert curvature_radius(noisy, "lsq") > 0.5
        assert curvature_radius(noisy) == pytest.approx(0.0373, abs=1e-3)


def test_least_squares_never_varies_more_than_its_start(windows):
    rng = np.random.default_rng(2)
    for _ in range(100):
        points = project_to_plane(np.cumsum(rng.normal(0.003, 0.01, (15, 3)), axis=0))

        def spread(method, points=points):
            return np.linalg.norm(points - fit_centre(points, method), axis=1).var()

        assert spread("lsq") <= spread("taubin") * (1 + 1e-9)


def test_least_squares_finds_the_minimum():
    # The gradient of Eq. 5 vanishes there: checked by central differences.
    rng = np.random.default_rng(4)
    for _ in range(20):
        points = project_to_plane(np.cumsum(rng.normal(0.003, 0.01, (15, 3)), axis=0))
        centre = fit_centre(points, "lsq")

        def cost(point, points=points):
            return np.linalg.norm(points - point, axis=1).var()

        reach = np.linalg.norm(points - centre, axis=1).mean()
        for axis in np.eye(2):
            for side in (-1.0, 1.0):
                assert cost(centre + side * 1e-3 * reach * axis) >= cost(centre) * (1 - 1e-9)


def test_centre_of_a_known_circle():
    angle = np.linspace(0.2, 1.4, 9)
    points = np.array([3.0, -1.0]) + 0.2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for method in ("taubin", "lsq"):
        assert fit_centre(points, method) == pytest.approx([3.0, -1.0], abs=1e-9)


def test_points_on_one_line_have_no_centre():
    line = np.arange(5.0)[:, None] * np.array([[1.0, 2.0]])
    assert np.isinf(fit_centre(line, "taubin")).all()
    assert np.isinf(fit_centre(line, "lsq")).all()


def test_projection_keeps_distances_within_a_plane(windows, rotation):
    flat = windows["corner"]
    projected = project_to_plane(flat @ rotation.T + 1.0)
    gaps = np.linalg.norm(np.diff(projected, axis=0), axis=1)
    assert projected.shape == (15, 2)
    assert gaps == pytest.approx(np.full(14, 0.01))
    assert projected.mean(axis=0) == pytest.approx([0.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("shape", [(15, 2), (15, 7), (15,)])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(ShapeError, match=r"\(w, 3\)"):
        curvature_radius(np.zeros(shape))


def test_an_unknown_method_is_refused(windows):
    with pytest.raises(ConfigError, match="centroid, taubin, lsq"):
        curvature_radius(windows["corner"], "menger")
    with pytest.raises(ConfigError, match="centroid, taubin, lsq"):
        fit_centre(np.eye(2), "menger")
