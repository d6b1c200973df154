"""RLDS in TFDS folders, written by an independent TFRecord writer."""

import numpy as np
import pytest
from demonstrations import data_sets as ds

pytest.importorskip("google_crc32c")
pytest.importorskip("google.protobuf")

from heisd_ros.demonstrations.readers import rlds as rlds_module
from heisd_ros.demonstrations.readers.rlds import Rlds
from heisd_ros.demonstrations.readers.tfrecord import index_records, masked_crc, parse_example
from heisd_ros.demonstrations.source import SourceOptions
from heisd_ros.errors import ConfigError, DataError


def source(path, **options):
    return Rlds([path], SourceOptions(**{"state": "axis_angle_fingers", **options}))


def read_all(opened):
    return [raw for piece in opened.pieces() for raw in opened.read(piece)]


def test_the_checksum_is_that_of_the_tfrecord_format():
    # CRC-32C of "123456789" is 0xE3069283 (RFC 3720's polynomial); masked as the format says.
    crc = 0xE3069283
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    assert masked_crc(b"123456789") == (rotated + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc(b"heisd") == ds.masked_crc(b"heisd")


def test_an_example_is_a_map_of_lists():
    data = ds.example({"a": np.array([1.5, -2.0]), "b": [b"x", b"yz"], "c": [3, -1], "d": []})
    found = parse_example(data)
    assert found["a"].tolist() == [1.5, -2.0]
    assert found["b"] == [b"x", b"yz"]
    assert found["c"].tolist() == [3, -1]
    assert len(found["d"]) == 0
    with pytest.raises(DataError, match=r"no tf\.train\.Example"):
        parse_example(b"\xff\xff\xff")


def test_episodes_are_read_as_recorded(tmp_path):
    episodes = [[ds.rlds_episode(number=0), ds.rlds_episode(7, number=1)], [ds.rlds_episode(5)]]
    ds.write_rlds(tmp_path / "libero/1.0.0", episodes)
    opened = source(tmp_path)
    names = [piece.name for piece in opened.pieces()]
    assert names[0] == "libero-train.tfrecord-00000-of-00002:0"
    assert not opened.lost
    first, second, third = read_all(opened)
    assert [len(raw.actions) for raw in (first, second, third)] == [8, 7, 5]
    assert first.actions[:, 6].tolist() == [-1, -1, -1, -1, 1, 1, 1, 1]
    assert second.actions[0, 1] == pytest.approx(0.001)
    assert np.array_equal(first.images["wrist"], ds.pictures(view=1))
    assert first.state[2] == pytest.approx([0.43, 0, 0.3, 0, 0, 0, 1, 0.08])
    assert (first.instruction, first.success) == (ds.TASK, True)
    assert first.facts["file_path"] == "/data/raw.hdf5"


def test_a_shard_is_read_as_far_as_whole_records_go(tmp_path):
    records = [ds.record(ds.example(ds.rlds_episode(number=n))) for n in range(3)]
    shard = b"".join(records)[:-10]
    ds.write_rlds(tmp_path / "d", [shard], lengths=[3])
    opened = source(tmp_path / "d")
    assert len(opened.pieces()) == 2
    assert opened.lost == {"libero-train.tfrecord-00000-of-00001: the file ends inside a record": 1}
    assert len(read_all(opened)) == 2


def test_missing_shards_and_records_are_counted(tmp_path):
    ds.write_rlds(tmp_path / "d", [[ds.rlds_episode()], [ds.rlds_episode()]], lengths=[2, 5])
    (tmp_path / "d/libero-train.tfrecord-00001-of-00002").unlink()
    opened = source(tmp_path / "d")
    assert len(opened.pieces()) == 1
    assert opened.lost == {
        "libero-train.tfrecord-00000-of-00002: fewer records than dataset_info.json says": 1,
        "records of missing shards": 5,
    }


def test_flipped_bits_are_found(tmp_path):
    records = [ds.record(ds.example(ds.rlds_episode(number=n))) for n in range(2)]
    spoiled = bytearray(b"".join(records))
    spoiled[len(records[0]) // 2] ^= 1
    ds.write_rlds(tmp_path / "d", [bytes(spoiled)], lengths=[2])
    opened = source(tmp_path / "d")
    bad, good = opened.pieces()
    with pytest.raises(DataError, match="checksum is wrong"):
        list(opened.read(bad))
    assert len(list(opened.read(good))) == 1


def test_a_wrong_length_ends_the_reading(tmp_path):
    whole = ds.record(ds.example(ds.rlds_episode()))
    path = tmp_path / "x"
    path.write_bytes(whole + b"\xff" * 50)
    index = index_records(path)
    assert index.offsets == (0,)
    assert "checksum of a record's length" in index.problem


def bomb(side):
    """A PNG header that promises a huge picture."""
    import struct
    import zlib

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        + struct.pack(">I", 0)
        + b"IDAT"
        + struct.pack(">I", zlib.crc32(b"IDAT"))
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps/action": None}, "has no feature 'steps/action'; it holds"),
        ({"steps/action": np.zeros(10)}, "10 numbers, no multiple of 7"),
        ({"steps/observation/image": [ds.encoded(ds.picture(0))] * 3}, "expected 8 pictures"),
        ({"steps/observation/image": [b"no picture"] * 8}, "unreadable"),
        ({"steps/observation/image": [bomb(12_000)] * 8}, "12000x12000"),
        ({"steps/observation/image": [bomb(20_000)] * 8}, "decompression bomb"),
        (
            {
                "steps/observation/image": [
                    ds.encoded(ds.picture(i, side=16 if i else 8)) for i in range(8)
                ]
            },
            "more than 64 pixels",
        ),
        ({"steps/language_instruction": None}, "give --instruction"),
        ({"steps/language_instruction": [b"a"] * 4 + [b"b"] * 4}, "several instructions"),
    ],
)
def test_an_unusable_episode_is_refused(tmp_path, changes, message):
    ds.write_rlds(tmp_path / "d", [[ds.rlds_episode(**changes)]])
    with pytest.raises(DataError, match=message):
        read_all(source(tmp_path / "d"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "test"}, r"no split 'test'; give --split train"),
        (
            {"cameras": {"wrist": "hand"}},
            r"no pictures hand; give --camera NAME=KEY with image, wrist_image",
        ),
    ],
)
def test_options_that_do_not_fit_name_what_does(tmp_path, options, message):
    ds.write_rlds(tmp_path / "d", [[ds.rlds_episode()]])
    with pytest.raises(ConfigError, match=message):
        source(tmp_path / "d", **options)


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="no TFDS data set"):
        source(tmp_path)
    ds.write_rlds(tmp_path / "a", [[ds.rlds_episode()]], fileFormat="array_record")
    with pytest.raises(DataError, match="expected fileFormat tfrecord, got 'array_record'"):
        source(tmp_path)
    ds.write_rlds(tmp_path / "b", [[ds.rlds_episode()]])
    with pytest.raises(ConfigError, match="several data sets"):
        source(tmp_path)
    (tmp_path / "b/dataset_info.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        source(tmp_path / "b")


def test_the_readers_need_no_tensorflow():
    import sys

    assert rlds_module
    assert "tensorflow" not in sys.modules
