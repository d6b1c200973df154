import numpy as np
import pytest

from heisd_ros.errors import DataError
from heisd_ros.simulation.cameras import area_downsample, project, projection_matrix, sees_sphere

LOOKING_DOWN = np.eye(3)  # MuJoCo: x right, y up in the picture, looking along -z
POSE = {"position": np.array([0.0, 0.0, 1.0]), "rotation": LOOKING_DOWN, "fovy_degrees": 90.0}


def test_blocks_become_their_rounded_mean():
    image = np.zeros((2, 4, 3), dtype=np.uint8)
    image[:, :2] = [[[0], [1]], [[2], [3]]]  # mean 1.5 rounds up to 2
    image[:, 2:] = 255
    assert area_downsample(image, 2)[0, :, 0].tolist() == [2, 255]


def test_a_side_that_is_no_multiple_is_refused():
    with pytest.raises(DataError, match="multiples of 2"):
        area_downsample(np.zeros((3, 4, 3), dtype=np.uint8), 2)


def test_point_below_the_camera_falls_on_the_middle_of_the_picture():
    matrix = projection_matrix(POSE["position"], LOOKING_DOWN, 90.0, 100)
    # One metre below, 90 degrees: the picture covers [-1, 1] m in 100 px, 50 px per metre.
    points = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.5, 0.0]])
    assert np.allclose(project(matrix, points), [[50, 50], [75, 50], [50, 25]])


def test_point_behind_the_camera_has_no_pixel():
    matrix = projection_matrix(POSE["position"], LOOKING_DOWN, 90.0, 100)
    assert np.isnan(project(matrix, np.array([[0.0, 0.0, 2.0]]))).all()


def test_spheres_are_seen_if_they_reach_into_the_view():
    centres = np.array(
        [
            [0.0, 0.0, 0.0],  # in front
            [0.0, 0.0, 2.0],  # behind
            [0.0, 0.0, 1.05],  # behind, but the camera is inside of it
            [1.1, 0.0, 0.0],  # beside: 0.1 * cos 45 = 0.0707 m out of the view
            [1.2, 0.0, 0.0],  # 0.1414 m out of the view
        ]
    )
    seen = sees_sphere(centres, np.full(5, 0.1), **POSE)
    assert seen.tolist() == [True, False, True, True, False]


@pytest.mark.sim
def test_leaving_out_what_is_not_in_view_changes_no_pixel():
    pytest.importorskip("libero", reason="LIBERO is not installed")
    from heisd_ros.simulation.libero import CAMERAS, LiberoEnvironment

    with LiberoEnvironment("libero_spatial", 0, image_size=64) as env:
        env.reset(0)
        renderer = env._renderer
        for camera in CAMERAS.values():
            culled = renderer.render(env.data, camera)
            hidden = ~renderer._in_view(env.data, camera) & renderer._visible
            assert hidden.any()  # else the test says nothing
            renderer._unbounded = np.ones_like(renderer._unbounded)
            assert np.array_equal(renderer.render(env.data, camera), culled)
            renderer._unbounded = np.array(env.model.geom_rbound) <= 0.0
        hand = env.end_effector().position[None]
        column, row = project(env.projections()[0], hand)[0]
        # At the start the hand is above the middle of the third-person picture.
        assert 25 < column < 40
        assert 0 < row < 32
