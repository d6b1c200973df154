"""Conversion of raw episodes: values known by hand, and the traps that a pose can disprove."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from demonstrations import data_sets as ds

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.demonstrations.conversion import (
    NO_OPS,
    UNPAIRED,
    convert,
    no_operations,
    openings,
    rotation_matrices,
    rotation_vectors,
)
from heisd_ros.demonstrations.ingest_profile import IngestProfile
from heisd_ros.demonstrations.plausibility import moves_too_early, statistics_problem
from heisd_ros.demonstrations.source import RawEpisode, check_size, quaternion_of, state_of
from heisd_ros.errors import DataError

DELTA = IngestProfile("none", "before", "open_is_one", "delta", 10.0)


def raw(steps=ds.STEPS, **changes):
    fields = {
        "name": "e",
        "images": {"third_person": ds.pictures(steps), "wrist": ds.pictures(steps, 1)},
        "actions": ds.deltas(steps),
        "state": state_of(ds.libero_state(steps), "axis_angle_fingers", "e"),
        "instruction": ds.TASK,
    }
    return RawEpisode(**{**fields, **changes})


def converted(episode, profile=DELTA):
    counts = Counter()
    return convert(episode, profile, counts, source="test"), +counts


def test_an_episode_in_our_convention_passes_unchanged():
    episode, counts = converted(raw())
    assert episode.actions == pytest.approx(ds.deltas(), abs=1e-7)
    assert np.array_equal(episode.images[:, 1], ds.pictures(view=1))
    assert episode.state[2] == pytest.approx([0.43, 0, 0.3, 0, 0, 0, 1, 0.08])
    assert (episode.control_hz, episode.success, counts) == (10.0, True, {})
    assert episode.source["profile"] == DELTA.to_text()


def corners(image):
    """Red top left, green top right, blue bottom left of an upright picture."""
    return image[0, 0, 0], image[0, -1, 1], image[-1, 0, 2]


@pytest.mark.parametrize(("turn", "flip"), [(0, "none"), ("v", "v"), (180, "180")])
def test_the_right_flip_makes_pictures_upright(turn, flip):
    spoiled = {"third_person": ds.pictures(turn=turn), "wrist": ds.pictures(view=1, turn=turn)}
    episode, _ = converted(raw(images=spoiled), replace(DELTA, flip=flip))
    assert corners(episode.images[3, 0]) == (13, ds.GREEN, ds.BLUE)


def test_half_a_turn_is_no_vertical_flip():
    episode, _ = converted(raw(), replace(DELTA, flip="v"))
    turned, _ = converted(raw(), replace(DELTA, flip="180"))
    assert episode.images[0, 0, -1, 0, 0] == 10  # the red corner: bottom left
    assert turned.images[0, 0, -1, -1, 0] == 10  # bottom right


def test_observation_after_the_action_takes_the_next_action():
    episode, counts = converted(raw(), replace(DELTA, observation="after"))
    assert len(episode) == ds.STEPS - 1
    assert episode.images[0, 0, 0, 0, 0] == 10  # the picture of row 0 ...
    assert episode.actions[0, 0] == pytest.approx(0.02)  # ... belongs to action 1
    assert episode.images[-1, 0, 0, 0, 0] == 10 + ds.STEPS - 2
    assert counts == {UNPAIRED: 1}


@pytest.mark.parametrize(
    ("convention", "opened", "closed"),
    [
        ("open_is_one", 1.0, 0.0),
        ("closed_is_one", 0.0, 1.0),
        ("minus_one_open", -1.0, 1.0),
        ("plus_one_open", 1.0, -1.0),
        ("position_m", 0.08, 0.0),
    ],
)
def test_every_gripper_convention(convention, opened, closed):
    values = np.array([opened, closed])
    assert openings(values, replace(DELTA, gripper=convention)).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("convention", "values", "message"),
    [
        ("open_is_one", [-1.0, 1.0], r"\[-1, 1\] do not fit --gripper open_is_one"),
        ("minus_one_open", [0.0, 1.0], "give --gripper open_is_one or closed_is_one"),
        ("plus_one_open", [1.0, 0.0], "give --gripper open_is_one or closed_is_one"),
        ("position_m", [0.0, 1.0], "position_m"),
        ("minus_one_open", [-1.0, 3.0], "do not fit"),
    ],
)
def test_values_that_cannot_have_the_meaning_are_refused(convention, values, message):
    with pytest.raises(DataError, match=message):
        openings(np.array(values), replace(DELTA, gripper=convention), "e")


def test_the_wrong_gripper_sign_is_found_by_the_fingers():
    wrong = raw(actions=np.column_stack([ds.deltas()[:, :6], 1.0 - ds.openings()]))
    with pytest.raises(DataError, match="--gripper open_is_one has the wrong sign"):
        converted(wrong)
    blind = replace(wrong, state=np.full((ds.STEPS, 8), np.nan, dtype=np.float32))
    assert len(converted(blind)[0]) == ds.STEPS  # nothing is known, nothing is claimed


def test_poses_that_are_called_deltas_are_found():
    actions = ds.deltas()
    actions[:, :3] = ds.positions() + 0.005
    with pytest.raises(DataError, match="give --action absolute"):
        converted(raw(actions=actions))


def wandering(steps=60):
    """Random moves, and the positions seen before each of them."""
    rng = np.random.default_rng(0)
    actions = np.zeros((steps, 7))
    actions[:, :3] = rng.uniform(-0.02, 0.02, (steps, 3))
    actions[:, 6] = 1.0
    before = np.array([0.4, 0.0, 0.3]) + np.cumsum(actions[:, :3], axis=0) - actions[:, :3]
    return actions, before


def test_off_by_one_pairing_is_found_by_the_pose():
    actions, before = wandering()
    after = before + actions[:, :3]  # as raw LIBERO records: the action has been done already
    assert not moves_too_early(actions[:, :3], before)
    assert moves_too_early(actions[:, :3], after)
    state = np.zeros((60, 8), dtype=np.float32)
    state[:, :3] = after
    images = {"third_person": ds.pictures(60)}
    episode = raw(60, actions=actions, state=state, images=images)
    with pytest.raises(DataError, match="give --observation after"):
        converted(episode)
    kept, _ = converted(episode, replace(DELTA, observation="after"))
    assert kept.actions[0, :3] == pytest.approx(actions[1, :3])


def test_steps_that_do_nothing_are_dropped_only_if_asked_for():
    actions = ds.deltas()
    actions[[1, 2], :6] = 0.0
    actions[ds.CLOSE_AT, :6] = 5e-5  # rests, but closes the gripper: kept
    assert len(converted(raw(actions=actions))[0]) == ds.STEPS
    episode, counts = converted(raw(actions=actions), replace(DELTA, no_ops="drop"))
    assert counts == {NO_OPS: 2}
    assert episode.images[:, 0, 0, 0, 0].tolist() == [10, 13, 14, 15, 16, 17]
    assert no_operations(np.zeros((3, 7))).tolist() == [True, True, True]


def test_nothing_left_is_an_error():
    actions = ds.deltas()
    actions[:, :] = [0, 0, 0, 0, 0, 0, 1]
    with pytest.raises(DataError, match="no step is left"):
        converted(raw(actions=actions), replace(DELTA, no_ops="drop"))
    with pytest.raises(DataError, match="no step is left"):
        converted(raw(1), replace(DELTA, observation="after"))


def test_a_velocity_becomes_the_move_of_one_step():
    profile = replace(DELTA, action="twist", translation_scale=0.05, rotation_scale=0.5)
    actions = np.zeros((ds.STEPS, 7))
    actions[:, 0], actions[:, 5], actions[:, 6] = 0.1, 2.0, ds.openings()
    episode, _ = converted(raw(actions=actions), profile)
    # 0.1 m/s for 0.1 s are 0.01 m: 0.2 units of 0.05 m. 2 rad/s: 0.2 rad, 0.4 units of 0.5 rad.
    assert episode.actions[0] == pytest.approx([0.2, 0, 0, 0, 0, 0.4, 1.0])


@pytest.mark.parametrize(
    ("rotation", "target"),
    [
        ("axis_angle", [0.0, 0.0, 0.3]),
        ("euler_xyz", [0.0, 0.0, 0.3]),
        ("quaternion_xyzw", [0.0, 0.0, np.sin(0.15), np.cos(0.15)]),
    ],
)
def test_an_absolute_pose_becomes_the_change_from_the_measured_one(rotation, target):
    profile = replace(
        DELTA,
        action="absolute",
        rotation=rotation,
        state="axis_angle_fingers",
        translation_scale=0.05,
        rotation_scale=0.5,
    )
    measured = ds.libero_state()
    measured[:, 5] = 0.1  # turned by 0.1 rad about z
    goal = ds.positions() + np.array([0.01, 0.0, -0.02])
    actions = np.column_stack([goal, np.tile(target, (ds.STEPS, 1)), ds.openings()])
    episode, _ = converted(
        raw(actions=actions, state=state_of(measured, "axis_angle_fingers", "e")), profile
    )
    assert episode.actions[0] == pytest.approx([0.2, 0, -0.4, 0, 0, 0.4, 1.0], abs=1e-5)


def test_rotations_go_there_and_back():
    rng = np.random.default_rng(1)
    vectors = rng.uniform(-1.5, 1.5, (50, 3))
    vectors[0] = 0.0
    matrices = rotation_matrices(vectors, "axis_angle")
    assert rotation_vectors(matrices) == pytest.approx(vectors, abs=1e-9)
    assert rotation_matrices(quaternion_of(vectors), "quaternion_xyzw") == pytest.approx(
        matrices, abs=1e-12
    )
    # x by a quarter turn, then z by a quarter turn about the fixed axes: y goes to z and stays.
    turned = rotation_matrices(np.array([[np.pi / 2, 0.0, np.pi / 2]]), "euler_xyz")[0]
    assert turned @ [0.0, 1.0, 0.0] == pytest.approx([0.0, 0.0, 1.0])
    assert turned @ [1.0, 0.0, 0.0] == pytest.approx([0.0, 1.0, 0.0])


def test_pictures_of_several_sizes_need_a_size():
    images = {"third_person": ds.pictures(side=16), "wrist": ds.pictures(view=1, side=8)}
    with pytest.raises(DataError, match=r"third_person 16x16, wrist 8x8; give --image-size"):
        converted(raw(images=images))
    episode, _ = converted(raw(images=images), replace(DELTA, image_size=8))
    assert episode.images.shape == (ds.STEPS, 2, 8, 8, 3)
    assert np.array_equal(episode.images[0, 1], ds.picture(0, 1, 8))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_actions_that_are_not_finite_are_refused(value):
    actions = ds.deltas()
    actions[3, 2] = value
    with pytest.raises(DataError, match="e: actions are not finite"):
        converted(raw(actions=actions))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": ds.deltas(7)}, "arrays of one length.*'action': 7"),
        ({"actions": np.zeros((8, 8))}, "expected 7 action values per step, got shape"),
        ({"images": {}}, "expected uint8 pictures"),
        ({"images": {"wrist": np.zeros((8, 4, 4, 3))}}, "expected uint8 pictures"),
        ({"instruction": " "}, "give --instruction"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        converted(raw(**changes))


def test_pictures_too_large_for_the_memory_are_refused_before_they_are_unpacked():
    check_size("e", 500, 256, 256)
    for steps, height, width in ((10**6, 8, 8), (10, 5000, 5000), (50_000, 512, 512)):
        with pytest.raises(DataError, match="are refused"):
            check_size("e", steps, height, width)


def test_a_state_of_another_layout_is_refused():
    with pytest.raises(DataError, match="give --state none"):
        state_of(np.zeros((3, 7)), "axis_angle_fingers", "e")
    assert np.isnan(state_of(np.zeros((3, 7)), "none", "e")).all()


def statistics(q99):
    table = {"q01": [-q99] * 7, "q99": [q99] * 7, "mask": [True] * 6 + [False]}
    return ActionStatistics.from_dict(table, "libero")


def test_statistics_of_another_data_set_are_noticed():
    actions = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 7))
    assert statistics_problem(actions, statistics(0.49)) == ""
    assert "lies outside the quantiles [-0.05, 0.05]" in statistics_problem(
        actions, statistics(0.05)
    )
    assert "of the range of 'libero'" in statistics_problem(actions, statistics(50.0))
