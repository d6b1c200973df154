import numpy as np
import pytest

from heisd_ros.demonstrations.episode import Episode, load_episode, read_episodes, save_episode
from heisd_ros.errors import DataError


def make_episode(length=3, **changes):
    rng = np.random.default_rng(0)
    fields = {
        "images": rng.integers(0, 256, (length, 2, 4, 4, 3), dtype=np.uint8),
        "actions": rng.uniform(-1, 1, (length, 7)).astype(np.float32),
        "state": rng.uniform(-1, 1, (length, 8)).astype(np.float32),
        "instruction": "pick up the bowl",
        "cameras": ("third_person", "wrist"),
        "control_hz": 20.0,
        "suite": "libero_spatial",
        "task": 4,
        "success": True,
        "source": {"seed": "7"},
        "privileged": {"mode": np.arange(length, dtype=np.uint8)},
    }
    return Episode(**{**fields, **changes})


def test_what_was_saved_is_what_is_loaded(tmp_path):
    path = tmp_path / "deep" / "er" / "ep.npz"
    episode = make_episode()
    save_episode(path, episode)
    loaded = load_episode(path)
    for name in ("images", "actions", "state"):
        assert np.array_equal(getattr(loaded, name), getattr(episode, name))
        assert getattr(loaded, name).dtype == getattr(episode, name).dtype
    for name in ("instruction", "cameras", "control_hz", "suite", "task", "success"):
        assert getattr(loaded, name) == getattr(episode, name)
    assert loaded.source == {"seed": "7"}
    assert loaded.privileged["mode"].tolist() == [0, 1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["ep.npz"]  # no partial file


def test_no_file_holds_a_pickle(tmp_path):
    save_episode(tmp_path / "ep.npz", make_episode())
    with np.load(tmp_path / "ep.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_pictures_and_privileged_arrays_can_be_left_out(tmp_path):
    save_episode(tmp_path / "ep.npz", make_episode())
    lean = load_episode(tmp_path / "ep.npz", images=False, privileged=False)
    assert lean.images.size == 0
    assert len(lean) == 3
    assert not lean.privileged


def test_failed_episodes_are_left_out_unless_asked_for(tmp_path):
    save_episode(tmp_path / "a.npz", make_episode(task=1))
    save_episode(tmp_path / "b.npz", make_episode(task=2, success=False))
    assert [episode.task for episode in read_episodes(tmp_path)] == [1]
    assert [episode.task for episode in read_episodes(tmp_path, failed=True)] == [1, 2]


def test_steps_carry_frames_with_stamps_of_the_control_rate():
    steps = list(make_episode().steps())
    assert [step.index for step in steps] == [0, 1, 2]
    assert [frame.camera for frame in steps[2].frames] == ["third_person", "wrist"]
    assert steps[2].frames[0].stamp_ns == 100_000_000  # 2 steps of 50 ms


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((2, 2, 4, 4, 3), np.uint8)}, "images must have shape"),
        ({"images": np.zeros((3, 1, 4, 4, 3), np.uint8)}, "images must have shape"),
        ({"actions": np.zeros((3, 6), np.float32)}, "actions must have shape"),
        ({"state": np.zeros((3, 7), np.float32)}, "state must have shape"),
        ({"privileged": {"mode": np.zeros(2)}}, "mode must have shape"),
        ({"actions": np.full((3, 7), np.nan, np.float32)}, "finite"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        make_episode(**changes)


@pytest.mark.parametrize("content", [b"", b"no zip at all"])
def test_damaged_file_is_named(tmp_path, content):
    (tmp_path / "ep.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"ep\.npz"):
        load_episode(tmp_path / "ep.npz")


def test_truncated_file_is_named(tmp_path):
    path = tmp_path / "ep.npz"
    save_episode(path, make_episode())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"ep\.npz"):
        load_episode(path)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="heisd ingest"):
        next(read_episodes(tmp_path / "nothing"))
