"""A recorded run as a demonstration."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("rosbags")

from offline import bag_maker as maker

from heisd_ros.config import make_config
from heisd_ros.demonstrations.mcap_repair import repair_mcap
from heisd_ros.demonstrations.readers.rosbag2 import BagSettings
from heisd_ros.demonstrations.readers.rosbag2_episodes import UNCOMMANDED, read_episodes
from heisd_ros.errors import DataError

COMMAND = make_config({"command.control_hz": 20.0, "command.translation_scale": 0.05}).command


def test_a_recorded_run_is_a_demonstration(tmp_path):
    second = maker.START_NS + 100 * 10**9
    messages = [*maker.episode(8), *maker.episode(5, second)]
    episodes = list(read_episodes(maker.write_bag(tmp_path / "run", messages), COMMAND))
    assert [len(episode) for episode in episodes] == [8, 5]
    first = episodes[0]
    assert (first.instruction, first.suite, first.task) == (maker.TASK, "libero_spatial", 2)
    assert (first.success, first.cameras) == (True, ("third_person", "wrist"))
    assert np.array_equal(first.images[3, 1], maker.picture(3, "wrist"))
    assert first.actions[3] == pytest.approx([0.1, 0, 0, 0, 0, 0, 1.0])
    assert first.state[2] == pytest.approx([*maker.position(2), 0, 0, 0, 1, 0.08])
    assert first.state[3, 7] == 0.0  # the fingers are closed from step 3 on


def test_velocities_become_actions_where_no_decision_was_recorded(tmp_path):
    messages = list(maker.inputs_only(maker.episode()))
    messages += [entry for entry in maker.episode() if entry[0] == "/twist_cmd"]
    dropped = Counter()
    bag = maker.write_bag(tmp_path / "run", messages)
    (episode,) = read_episodes(bag, COMMAND, dropped=dropped)
    assert not dropped
    # 0.1 m/s for 1/20 s are 0.005 m: a tenth of the unit of 0.05 m.
    assert episode.actions[:, 0] == pytest.approx(np.full(8, 0.1))
    # The fingers are closed in steps 3 to 5, so they were told to close one step before.
    assert episode.actions[:, 6].tolist() == [1, 1, 0, 0, 0, 1, 1, 1]


def test_pictures_without_a_command_are_counted(tmp_path):
    messages = list(maker.inputs_only(maker.episode()))
    twists = [entry for entry in maker.episode() if entry[0] == "/twist_cmd"]
    dropped = Counter()
    bag = maker.write_bag(tmp_path / "run", messages + twists[:5])
    (episode,) = read_episodes(bag, COMMAND, dropped=dropped)
    assert len(episode) + dropped[UNCOMMANDED] == 8
    assert dropped[UNCOMMANDED] >= 2


def test_a_cut_off_mcap_is_read_as_far_as_whole_records_go(tmp_path):
    bag = maker.write_bag(tmp_path / "run", maker.episode(30, size=96))
    # A chunk ends behind its first MiB: 19 steps of two pictures of 27,648 bytes. The cut is in the
    # second chunk, which is no whole record.
    (file,) = bag.glob("*.mcap")
    content = file.read_bytes()
    file.write_bytes(content[: int(0.85 * len(content))])
    with pytest.raises(DataError, match="damaged or cut off"):
        list(read_episodes(bag, COMMAND))
    dropped = Counter()
    settings = BagSettings(salvage=True)
    (episode,) = read_episodes(bag, COMMAND, settings, dropped=dropped)
    assert 17 <= len(episode) <= 19
    assert np.array_equal(episode.images[3, 1], maker.picture(3, "wrist", 96))
    assert dropped["messages that metadata.yaml promises"] > 0
    assert any("cut off" in reason for reason in dropped)
    assert file.read_bytes() == content[: int(0.85 * len(content))]  # the recording is not touched


def test_only_cut_off_mcap_files_are_repaired(tmp_path):
    bag = maker.write_bag(tmp_path / "run", maker.episode(3))
    (file,) = bag.glob("*.mcap")
    assert repair_mcap(file, tmp_path / "copy") == -1  # complete
    (tmp_path / "other").write_bytes(b"SQLite format 3")
    assert repair_mcap(tmp_path / "other", tmp_path / "copy") == -1
    assert not (tmp_path / "copy").exists()


def test_a_bag_without_any_command_is_no_demonstration(tmp_path):
    folder = maker.write_bag(tmp_path / "run", maker.inputs_only(maker.episode()))
    with pytest.raises(DataError, match="holds no demonstration"):
        list(read_episodes(folder, COMMAND))
