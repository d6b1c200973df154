"""Bags as people have them: split, compressed, without metadata, cut off, empty, foreign."""

import math
import shutil
import sys

import numpy as np
import pytest
import yaml

pytest.importorskip("rosbags")

from offline import bag_maker as maker
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from heisd_ros.demonstrations.bag_files import BagFiles
from heisd_ros.demonstrations.bag_topics import find_topics, load_mapping
from heisd_ros.demonstrations.bag_writer import BagWriter
from heisd_ros.demonstrations.readers.rosbag2 import BagReader, BagSettings
from heisd_ros.errors import ConfigError, DataError

MCAP, SQLITE = "mcap", "sqlite3"


@pytest.fixture(params=[MCAP, SQLITE])
def storage(request):
    return request.param


def bag(tmp_path, messages=None, **options):
    return maker.write_bag(tmp_path / "run", messages or maker.episode(), **options)


def seen(folder, **settings):
    with BagReader(folder, BagSettings(**settings)) as reader:
        return list(reader.observations(period_s=0.05)), reader.skipped()


def check_eight_observations(folder):
    observations, _ = seen(folder)
    assert [o.stamp_ns for o in observations] == [
        maker.START_NS + step * maker.PERIOD_NS for step in range(8)
    ]
    for step, observation in enumerate(observations):
        assert [f.camera for f in observation.frames] == ["third_person", "wrist"]
        for frame in observation.frames:
            assert np.array_equal(frame.image, maker.picture(step, frame.camera))
        assert observation.instruction == maker.TASK
        assert np.allclose(observation.proprioception.position, maker.position(step))
        assert observation.proprioception.gripper_opening == (0.0 if 3 <= step < 6 else 1.0)


def test_an_observation_joins_pictures_pose_and_gripper_of_one_moment(tmp_path, storage):
    check_eight_observations(bag(tmp_path, storage=storage))


def test_decisions_carry_the_commands_of_their_stamp(tmp_path):
    with BagReader(bag(tmp_path)) as reader:
        decisions = reader.decisions
        ends = [status for status in reader.statuses if status.done]
    assert len(decisions) == 8  # the acknowledgement of the end is no decision
    assert decisions[4].image_ns == maker.START_NS + 4 * maker.PERIOD_NS
    assert decisions[4].opening == 0.0
    assert decisions[4].twist.tolist() == [0.1, 0, 0, 0, 0, 0]
    assert decisions[5].report.accept_length == 5.0
    assert [(end.success, end.init, end.step) for end in ends] == [(True, 3, 8)]


# Case a.
def test_a_folder_without_metadata_is_read(tmp_path, storage):
    folder = bag(tmp_path, storage=storage)
    (folder / "metadata.yaml").unlink()
    check_eight_observations(folder)


def test_metadata_that_is_no_yaml_does_not_matter(tmp_path):
    folder = bag(tmp_path)
    (folder / "metadata.yaml").write_text("{[", encoding="utf-8")
    check_eight_observations(folder)


# Case b.
@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_cut_off_file_is_refused_by_name(tmp_path, storage, with_metadata):
    folder = bag(tmp_path, maker.episode(40), storage=storage)
    file = next(path for path in folder.iterdir() if path.suffix in {".mcap", ".db3"})
    content = file.read_bytes()
    file.write_bytes(content[: int(0.6 * len(content))])
    if not with_metadata:
        (folder / "metadata.yaml").unlink()
    with pytest.raises(DataError, match=f"{file.name}.* damaged or cut off"):
        seen(folder)


def test_fewer_messages_than_promised_are_refused(tmp_path):
    folder = bag(tmp_path)
    text = yaml.safe_load((folder / "metadata.yaml").read_text())
    text["rosbag2_bagfile_information"]["message_count"] += 5
    (folder / "metadata.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(DataError, match=r"cut off.*promises 79 messages, the files hold 74"):
        seen(folder)


# Case c.
@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_bag_in_three_files_is_read_in_order(tmp_path, storage, with_metadata):
    messages = list(maker.episode())
    parts = [messages[:20], messages[20:50], messages[50:]]
    whole = tmp_path / "run"
    whole.mkdir()
    names, counts = [], 0
    for number, part in enumerate(parts):
        piece = maker.write_bag(tmp_path / f"piece{number}", part, storage=storage, first=counts)
        file = next(path for path in piece.iterdir() if path.suffix in {".mcap", ".db3"})
        # A tenth file must not come before the second one.
        names.append(f"run_{8 + number}{file.suffix}")
        shutil.move(file, whole / names[-1])
        counts += len(part)
    if with_metadata:
        facts = {"relative_file_paths": names, "message_count": counts}
        text = yaml.safe_dump({"rosbag2_bagfile_information": facts})
        (whole / "metadata.yaml").write_text(text)
    stamps = [observation.stamp_ns for observation in seen(whole)[0]]
    assert stamps == [maker.START_NS + s * maker.PERIOD_NS for s in range(8)]


def test_a_missing_part_is_named(tmp_path):
    folder = bag(tmp_path)
    text = yaml.safe_load((folder / "metadata.yaml").read_text())
    text["rosbag2_bagfile_information"]["relative_file_paths"].append("run_1.mcap")
    (folder / "metadata.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(DataError, match=r"incomplete.*run_1\.mcap"):
        seen(folder)


# Case d.
@pytest.mark.parametrize("mode", [CompressionMode.FILE, CompressionMode.MESSAGE])
@pytest.mark.parametrize("with_metadata", [True, False])
def test_zstd_is_unpacked(tmp_path, mode, with_metadata):
    folder = bag(tmp_path, storage=SQLITE, compression=(mode, CompressionFormat.ZSTD))
    if not with_metadata:
        (folder / "metadata.yaml").unlink()
    check_eight_observations(folder)


def test_compressed_chunks_are_unpacked(tmp_path):
    check_eight_observations(
        bag(tmp_path, compression=(CompressionMode.STORAGE, CompressionFormat.ZSTD))
    )


# Case e.
def test_a_topic_of_unknown_type_is_counted_and_ignored(tmp_path):
    folder = tmp_path / "run"
    writer = Writer(folder, version=9, storage_plugin=StoragePlugin.SQLITE3)
    with writer:
        odd = writer.add_connection(
            "/odd", "odd_msgs/msg/Odd", msgdef="wrong definition (", rihs01="RIHS01_" + "0" * 64
        )
        connections = {}
        for number, (topic, message) in enumerate(maker.episode()):
            name = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=maker.TYPES)
            data = maker.TYPES.serialize_cdr(message, name)
            writer.write(connections[topic], 10**18 + number, bytes(data))
            writer.write(odd, 10**18 + number, b"\x00\x01\x00\x00what")
    check_eight_observations(folder)
    assert seen(folder)[1]["/odd: unknown type"] == 74


# Case f.
def test_version_nine_with_nested_qos_is_read(tmp_path):
    folder = tmp_path / "run"
    forever = QosTime(9223372036, 854775807)
    profile = Qos(
        QosHistory.KEEP_LAST,
        10,
        QosReliability.RELIABLE,
        QosDurability.VOLATILE,
        forever,
        forever,
        QosLiveliness.AUTOMATIC,
        forever,
        avoid_ros_namespace_conventions=False,
    )
    with Writer(folder, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        connections = {}
        for number, (topic, message) in enumerate(maker.episode()):
            name = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(
                    topic, name, typestore=maker.TYPES, offered_qos_profiles=[profile]
                )
            data = maker.TYPES.serialize_cdr(message, name)
            writer.write(connections[topic], 10**18 + number, bytes(data))
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    topic = metadata["rosbag2_bagfile_information"]["topics_with_message_count"][0]
    assert isinstance(topic["topic_metadata"]["offered_qos_profiles"], list)
    check_eight_observations(folder)


# Case g.
def test_an_empty_bag_is_refused(tmp_path, storage):
    folder = maker.write_bag(tmp_path / "run", [], storage=storage)
    with pytest.raises(DataError, match="run is empty: it holds no message"):
        seen(folder)


# Case h.
def test_compressed_pictures_are_enough(tmp_path):
    check_eight_observations(bag(tmp_path, maker.episode(compress=True)))


# Case i.
def test_a_missing_camera_is_named_with_what_is_there(tmp_path):
    messages = [entry for entry in maker.episode() if entry[0] != "/wrist/image"]
    with pytest.raises(DataError, match=r"no image topic for camera wrist.*/third_person/image"):
        seen(bag(tmp_path, messages))


# Case j.
@pytest.mark.parametrize("name", ["folder", "notes.txt", "nothing"])
def test_what_is_no_bag_is_refused_by_name(tmp_path, name):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
        (path / "picture.png").write_bytes(b"no bag")
    elif name == "notes.txt":
        path.write_text("no bag")
    with pytest.raises(DataError, match=f"{name} (is not a bag|does not exist)"):
        BagFiles(path)


@pytest.mark.parametrize("suffix", [".mcap", ".db3", ".db3.zstd"])
def test_other_content_under_a_bag_name_is_refused(tmp_path, suffix):
    path = tmp_path / f"odd{suffix}"
    path.write_bytes(b"this is text, not a recording" * 40)
    with pytest.raises(DataError, match="damaged or cut off"):
        BagFiles(path)


def test_a_single_storage_file_is_read(tmp_path):
    folder = bag(tmp_path)
    check_eight_observations(next(folder.glob("*.mcap")))


def test_without_rosbags_the_install_line_is_told(tmp_path, monkeypatch):
    folder = bag(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "rosbags"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rosbags", None)
    with pytest.raises(ImportError, match=r"pip install 'heisd_ros\[bags\]'"):
        BagFiles(folder)


def test_pictures_that_were_sent_again_give_one_observation(tmp_path):
    messages = list(maker.episode())
    twice = messages[:5] + messages[:5] + messages[5:]
    assert len(seen(bag(tmp_path, twice))[0]) == 8


def test_a_damaged_picture_is_counted(tmp_path):
    messages = list(maker.episode())
    topic, message = messages[3]
    message.encoding = "foo"
    observations, skipped = seen(bag(tmp_path, messages))
    assert len(observations) == 7
    assert skipped[f"{topic}: unknown_encoding"] == 1


def test_a_bag_without_decisions_is_thinned_to_the_control_rate(tmp_path):
    folder = bag(tmp_path, maker.inputs_only(maker.episode()))
    with BagReader(folder) as reader:
        stamps = [o.stamp_ns for o in reader.observations(period_s=0.1)]
    assert stamps == [maker.START_NS + step * maker.PERIOD_NS for step in (0, 2, 4, 6)]


def test_a_bag_without_an_instruction_needs_one(tmp_path):
    messages = [e for e in maker.inputs_only(maker.episode()) if e[0] != "/instruction"]
    folder = bag(tmp_path, messages)
    with pytest.raises(DataError, match=r"no instruction.*--instruction"):
        seen(folder)
    with BagReader(folder) as reader:
        assert {o.instruction for o in reader.observations(instruction="go")} == {"go"}


def test_a_picture_without_a_pose_near_it_is_not_decided_from(tmp_path):
    messages = [e for e in maker.episode() if e[0] != "/ee_pose"]
    late = maker.pose(maker.START_NS + 10**10, 1)
    observations, skipped = seen(bag(tmp_path, [*messages, ("/ee_pose", late)]))
    assert observations == []
    assert skipped["observation without a pose near it"] == 8


def test_the_nearest_force_belongs_to_the_picture_if_forces_are_read(tmp_path):
    start, period = maker.START_NS, maker.PERIOD_NS
    forces = [
        ("/wrench", maker.wrench(start - 1, 2.0, 3.0, -6.0)),
        ("/wrench", maker.wrench(start + period + 1, math.nan)),
        ("/wrench", maker.wrench(start + 2 * period, 0.0, 0.0, 4.0)),
    ]
    folder = bag(tmp_path, [*forces, *maker.episode()])
    observations, skipped = seen(folder, forces=True, oldest_state_s=2.5e-9 * period)
    assert [o.force for o in observations] == [7.0, None, 4.0, 4.0, 4.0, None, None, None]
    assert skipped["wrench that is not finite"] == 1
    assert {o.force for o in seen(folder)[0]} == {None}


def test_a_mapping_names_foreign_topics(tmp_path):
    names = {"/third_person/image": "/cam0/rgb", "/wrist/image": "/cam1/rgb", "/ee_pose": "/tcp"}
    messages = [(names.get(t, t), m) for t, m in maker.inputs_only(maker.episode())]
    folder = bag(tmp_path, messages)
    file = tmp_path / "topics.yaml"
    file.write_text("cameras: {third_person: /cam0/rgb, wrist: /cam1/rgb}\npose: /tcp\n")
    assert len(seen(folder, mapping=load_mapping(file))[0]) == 8


def test_a_mapping_with_an_unknown_role_names_the_nearest(tmp_path):
    file = tmp_path / "topics.yaml"
    file.write_text("joint_state: /joints\n")
    with pytest.raises(ConfigError, match="'joint_state'; did you mean 'joint_states'"):
        load_mapping(file)


def test_a_mapping_to_an_absent_topic_is_refused():
    with pytest.raises(DataError, match="/tcp, which is not in it"):
        find_topics({"/a/image": "sensor_msgs/msg/Image"}, ("a",), {"pose": "/tcp"})


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (
            {"pose": "/odom"},
            "of type nav_msgs/msg/Odometry, expected geometry_msgs/msg/PoseStamped",
        ),
        ({"cameras": {"a": "/odom"}}, "expected sensor_msgs/msg/Image or"),
    ],
)
def test_a_mapping_to_a_topic_of_another_type_is_refused(mapping, words):
    topics = {"/a/image": "sensor_msgs/msg/Image", "/odom": "nav_msgs/msg/Odometry"}
    with pytest.raises(DataError, match=words):
        find_topics(topics, ("a",), mapping)


def test_twists_without_a_header_count_by_their_reception(tmp_path):
    plain = maker.kind("geometry_msgs/msg/Twist")(maker.vector(0.1), maker.vector())
    messages = [*maker.inputs_only(maker.episode()), ("/cmd_vel", plain)]
    folder = maker.write_bag(tmp_path / "run", messages)
    with BagReader(folder, BagSettings(mapping={"twist": "/cmd_vel"})) as reader:
        ((stamp_ns, velocity),) = reader.twists
    # The writer counts receptions from 1e18 ns, a millisecond apart.
    assert stamp_ns == 10**18 + (len(messages) - 1) * 10**6
    assert velocity.tolist() == [0.1, 0, 0, 0, 0, 0]


def test_raw_pictures_win_over_compressed_ones():
    topics = {
        "/a/image/compressed": "sensor_msgs/msg/CompressedImage",
        "/a/image": "sensor_msgs/msg/Image",
    }
    assert find_topics(topics, ("a",)).cameras == {"a": "/a/image"}


def test_the_only_pose_topic_is_the_pose_but_a_text_must_have_our_name():
    topics = {
        "/a/image": "sensor_msgs/msg/Image",
        "/tcp": "geometry_msgs/msg/PoseStamped",
        "/say": "std_msgs/msg/String",
    }
    assert find_topics(topics, ("a",)).roles == {"pose": "/tcp"}


def test_the_writer_makes_a_bag_that_the_reader_reads(tmp_path):
    with BagWriter(tmp_path / "run", maker.KINDS, facts={"who": "a test"}) as writer:
        for number, (topic, message) in enumerate(maker.episode()):
            data = bytes(maker.TYPES.serialize_cdr(message, maker.KINDS[topic]))
            writer.put(topic, 10**18 + number, data)
    assert writer.dropped == 0
    check_eight_observations(tmp_path / "run")
    with BagFiles(tmp_path / "run") as files:
        assert files.facts == {"who": "a test"}


def test_the_writer_never_overwrites(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(DataError, match="exists already"):
        BagWriter(tmp_path / "run", {})


def test_a_failure_while_writing_is_told_at_the_end(tmp_path):
    writer = BagWriter(tmp_path / "run", {"/a": "std_msgs/msg/String"})
    writer.put("/b", 1, b"unknown topic")
    with pytest.raises(DataError, match=r"incomplete.*/b"):
        writer.close()
