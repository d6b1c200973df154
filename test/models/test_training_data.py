import json
from dataclasses import replace

import numpy as np
import pytest

from heisd_ros.demonstrations.episode import Episode, save_episode
from heisd_ros.errors import DataError
from heisd_ros.models.training_data import CORRECTION_WEIGHT, load_training_set

NAMES = ["bowl_1", "plate_1", "bowl_2"]
# A camera at the origin that looks along z: 100 px focal length, centre at (16, 16).
CAMERA = np.array([[100.0, 0.0, 16.0, 0.0], [0.0, 100.0, 16.0, 0.0], [0.0, 0.0, 1.0, 0.0]])


def episode(length=3, *, number=0, takeover=0, success=True, instruction="pick up the bowl"):
    points = np.array([[0.0, 0.0, 1.0], [0.1, 0.0, 1.0], [0.0, 0.0, -1.0]])
    state = np.zeros((length, 8), np.float32)
    state[:, :3], state[:, 7] = (0.0, 0.05, 1.0), 0.04
    repeat = lambda array: np.repeat(array[None], length, axis=0).astype(np.float32)  # noqa: E731
    return Episode(
        images=np.zeros((length, 2, 32, 32, 3), np.uint8),
        actions=np.zeros((length, 7), np.float32),
        state=state,
        instruction=instruction,
        cameras=("third_person", "wrist"),
        control_hz=20.0,
        success=success,
        source={
            "keypoints": json.dumps(NAMES),
            "episode": str(number),
            "takeover": str(takeover),
        },
        privileged={
            "grasp_point": repeat(np.array([0.0, 0.1, 1.0])),
            "place_point": repeat(np.array([0.2, 0.05, 1.0])),
            "keypoints_world": repeat(points),
            "projections": repeat(np.stack([CAMERA, CAMERA])),
            "hold_still": np.arange(length) == 0,
        },
    )


def save_all(folder, *episodes):
    for i, one in enumerate(episodes):
        save_episode(folder / f"ep_{i:04d}.npz", one)
    return load_training_set([folder])


def test_points_are_projected_and_goals_are_relative_to_the_hand(tmp_path):
    frames = save_all(tmp_path, episode()).frames
    np.testing.assert_allclose(frames.goals[0], [[0.0, 0.05, 0.0], [0.2, 0.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(frames.goal_pixels[0, 1], [[16.0, 26.0], [36.0, 21.0]], atol=1e-4)
    np.testing.assert_allclose(frames.state[0], [0.0, 0.05, 1.0, 0.04], atol=1e-6)


def test_objects_of_one_kind_share_a_target_and_points_behind_the_camera_are_unknown(tmp_path):
    data = save_all(tmp_path, episode())
    assert data.kinds == ("bowl", "plate")
    bowls, plates = data.frames.kind_pixels[0, 0]
    np.testing.assert_allclose(bowls[0], [16.0, 16.0], atol=1e-4)
    np.testing.assert_allclose(plates[0], [26.0, 16.0], atol=1e-4)
    # The second bowl is behind the camera, a second plate does not exist.
    assert np.isnan(bowls[1]).all()
    assert np.isnan(plates[1]).all()


def test_failed_demonstrations_are_left_out_but_failed_corrections_are_used(tmp_path):
    data = save_all(
        tmp_path, episode(3), episode(4, success=False), episode(5, success=False, takeover=30)
    )
    assert len(data.frames) == 3 + 5
    at_rest, moving = data.frames.weight[:2]
    assert at_rest == 2.0 * moving
    assert data.frames.weight[4] == CORRECTION_WEIGHT * moving


def test_an_object_that_fell_off_the_table_is_not_chased(tmp_path):
    fallen = episode(6, success=False, takeover=30)
    fallen.privileged["grasp_point"][:] = (1.5, 0.0, -0.9)
    assert len(save_all(tmp_path, episode(3), fallen).frames) == 3


def test_every_twelfth_demonstration_is_held_out(tmp_path):
    data = save_all(tmp_path, episode(3, number=10), episode(4, number=11), episode(5, number=12))
    assert data.validation_rows.tolist() == [3, 4, 5, 6]
    assert len(data.train_rows) == 8


def test_a_task_with_fewer_frames_is_drawn_as_often_up_to_a_limit(tmp_path):
    other = episode(1, instruction="open the drawer")
    weight = save_all(tmp_path, episode(2), episode(1), other).frames.weight
    # 4 frames, 2 tasks: the first has 3 frames (factor 2/3), the second 1 (factor 2).
    np.testing.assert_allclose(weight, [2 * 2 / 3, 2 / 3, 2 * 2 / 3, 2 * 2.0])


def test_an_episode_without_targets_says_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match="keypoints"):
        save_all(tmp_path, replace(episode(), source={}))


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no usable episode"):
        load_training_set([tmp_path])
