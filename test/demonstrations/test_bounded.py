"""A small file that unfolds to a huge one is refused before it fills the memory."""

import importlib
import json
import struct
import zipfile

import numpy as np
import pytest
from offline.bag_maker import episode, write_bag

from heisd_ros.demonstrations import bounded
from heisd_ros.demonstrations.bag_types import types_of
from heisd_ros.demonstrations.episode import load_episode
from heisd_ros.demonstrations.readers.rosbag2 import BagReader
from heisd_ros.errors import DataError

pytest.importorskip("rosbags")
zstd = importlib.import_module(bounded.zstd_module().__name__)
lz4_frame = importlib.import_module("lz4.frame")
MIB = 1024 * 1024


def test_frames_are_unpacked_one_behind_the_other():
    packed = zstd.compress(b"one") + zstd.compress(b"two" * 1000)
    assert bounded.unpack_zstd(packed) == b"one" + b"two" * 1000


def test_a_message_bomb_is_refused():
    bomb = zstd.compress(bytes(8 * MIB))
    assert len(bomb) < 2000
    assert len(bounded.unpack_zstd(bomb, 8 * MIB)) == 8 * MIB
    with pytest.raises(DataError, match="refused"):
        bounded.unpack_zstd(bomb, 8 * MIB - 1)


def test_a_file_bomb_is_refused_and_an_honest_file_is_not(tmp_path):
    packed, plain = tmp_path / "x.zst", tmp_path / "x"
    packed.write_bytes(zstd.compress(bytes(8 * MIB)))  # 1 : 8000 or more
    with pytest.raises(DataError, match="refused"):
        bounded.unpack_file(packed, plain)
    assert plain.stat().st_size < 8 * MIB
    packed.write_bytes(zstd.compress(bytes(range(256)) * 4))
    bounded.unpack_file(packed, plain)
    assert plain.read_bytes() == bytes(range(256)) * 4


def mcap_with_chunk(path, said, name, packed):
    head = struct.pack("<QQQII", 0, 0, said, 0, len(name)) + name + struct.pack("<Q", len(packed))
    record = struct.pack("<BQ", 0x06, len(head) + len(packed)) + head + packed
    path.write_bytes(bounded.MCAP_MAGIC + record)


@pytest.mark.parametrize("name", [b"zstd", b"lz4"])
def test_a_chunk_that_unfolds_to_more_than_it_says_is_refused(tmp_path, name):
    compress = {b"zstd": zstd.compress, b"lz4": lz4_frame.compress}[name]
    path = tmp_path / "x.mcap"
    mcap_with_chunk(path, 3 * MIB, name, compress(bytes(3 * MIB)))
    bounded.check_mcap(path)
    mcap_with_chunk(path, 1000, name, compress(bytes(3 * MIB)))
    with pytest.raises(DataError, match="1000 bytes"):
        bounded.check_mcap(path)


def test_a_chunk_that_says_to_be_huge_is_refused(tmp_path):
    path = tmp_path / "x.mcap"
    mcap_with_chunk(path, bounded.MAX_BLOCK_BYTES + 1, b"zstd", b"")
    with pytest.raises(DataError, match="refused"):
        bounded.check_mcap(path)


@pytest.mark.parametrize("cut", [9, 20, 60, 100])
def test_a_damaged_file_is_left_to_the_reader(tmp_path, cut):
    path = tmp_path / "x.mcap"
    mcap_with_chunk(path, 3000, b"zstd", zstd.compress(bytes(3000)))
    path.write_bytes(path.read_bytes()[:cut])
    bounded.check_mcap(path)


def test_the_bag_reader_refuses_a_bomb_by_name(tmp_path):
    bag = write_bag(tmp_path / "bag", episode())
    (file,) = bag.glob("*.mcap")
    mcap_with_chunk(file, 1000, b"zstd", zstd.compress(bytes(3 * MIB)))
    with pytest.raises(DataError, match=file.name):
        BagReader(bag)


def test_an_episode_archive_that_says_to_be_huge_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, images=np.zeros((MIB,), np.uint8))
    bounded.check_archive(path, MIB + 1000)
    with pytest.raises(DataError, match="refused"):
        bounded.check_archive(path, MIB - 1)


def test_an_array_that_fits_into_no_memory_is_a_damaged_episode(tmp_path):
    path = tmp_path / "x.npz"
    header = {"descr": "|u1", "fortran_order": False, "shape": (2**60,)}
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("facts.npy", "w") as file:
            np.lib.format.write_array(file, np.array(json.dumps({"cameras": []})))
        with archive.open("action.npy", "w") as file:
            np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(DataError, match="not a saved episode"):
        load_episode(path)


class Connection:
    def __init__(self, name):
        self.msgtype = name
        self.msgdef = type("D", (), {"data": "int32 x", "format": type("F", (), {"name": "MSG"})})


def test_a_type_name_that_is_code_never_reaches_the_code_generator(tmp_path):
    mark = tmp_path / "mark"
    evil = f'a/msg/B."""\n    open({str(mark)!r}, "w")\n    """'
    types = types_of([Connection(evil), Connection("a/msg/Good")])
    assert "a/msg/Good" in types.fielddefs
    assert not any("open" in name for name in types.fielddefs)
    assert not mark.exists()
