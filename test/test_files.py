"""A file is there whole or as it was; a folder has one writer; `with` closes."""

import os

import pytest

from heisd_ros.closing import Closing
from heisd_ros.demonstrations.folder_lock import lock_folder
from heisd_ros.files import PARTIAL, whole_file, write_whole


def test_a_file_appears_in_one_piece_and_its_folder_is_made(tmp_path):
    path = tmp_path / "a" / "b.bin"
    with whole_file(path) as stream:
        stream.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.bin"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "b.txt"
    write_whole(path, "old\n")

    def half():
        yield b"half of the n"
        raise RuntimeError

    with pytest.raises(RuntimeError), whole_file(path) as stream:
        stream.writelines(half())
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_being_written_is_known_by_its_name(tmp_path):
    with whole_file(tmp_path / "b.npz"):
        assert [entry.name for entry in tmp_path.iterdir()] == [f"b.npz.{os.getpid()}.{PARTIAL}"]


def test_text_is_written_as_utf_8_without_changes(tmp_path):
    write_whole(tmp_path / "t", "μ\r\nx\n")
    assert (tmp_path / "t").read_bytes() == "μ\r\nx\n".encode()


def test_it_is_on_the_disk_before_it_takes_the_place(tmp_path, monkeypatch):
    calls = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append((tmp_path / "t").exists()), real(fd)))
    write_whole(tmp_path / "t", "x")
    assert calls == [False]


def test_a_locked_folder_is_refused_until_it_is_let_go(tmp_path):
    descriptor = lock_folder(tmp_path / "new")
    with pytest.raises(BlockingIOError):
        lock_folder(tmp_path / "new")
    os.close(descriptor)
    os.close(lock_folder(tmp_path / "new"))


class Thing(Closing):
    closed = 0

    def close(self):
        self.closed += 1


def test_a_with_block_closes_whatever_happens_and_hides_no_error():
    with Thing() as thing:
        assert thing.closed == 0
    assert thing.closed == 1
    broken = Thing()
    with pytest.raises(KeyError), broken:
        raise KeyError
    assert broken.closed == 1
