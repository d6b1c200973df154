import argparse
from pathlib import Path

import pytest

from heisd_ros.offline import ingest, ingest_expert
from heisd_ros.simulation.collect import CollectionReport


def parsed(*extra):
    parser = argparse.ArgumentParser()
    ingest_expert.add_arguments(parser)
    return parser.parse_args(["--expert", "--out", "demos", *extra])


def test_shares_cover_every_episode_once_and_every_task_in_each():
    shares = ingest_expert.make_shares(parsed("--episodes", "5", "--processes", "2"), (0, 8))
    assert [share.numbers for share in shares] == [(0, 2, 4), (1, 3)]
    assert all(share.tasks == (0, 8) for share in shares)


def test_more_processes_than_episodes_make_no_empty_share():
    shares = ingest_expert.make_shares(parsed("--episodes", "1", "--processes", "4"), (0,))
    assert [share.numbers for share in shares] == [(0,)]


def test_first_moves_the_numbers():
    (share,) = ingest_expert.make_shares(parsed("--episodes", "2", "--first", "30"), (0,))
    assert share.numbers == (30, 31)


def test_options_reach_the_collection_and_the_counts_are_printed(monkeypatch, capsys):
    seen = {}

    def fake_collect(plan, tasks, numbers, out, *, policy):
        seen.update(plan=plan, tasks=tasks, numbers=numbers, out=out, policy=policy)
        return CollectionReport(solved=3, failed=1, frames=321)

    monkeypatch.setattr(ingest_expert, "collect", fake_collect)
    arguments = "--expert --tasks 2,3 --episodes 2 --out d --seed 9 --image-size 64 --noise 0.1"
    assert ingest.main(arguments.split()) == 0
    assert (seen["tasks"], seen["numbers"], seen["out"]) == ((2, 3), (0, 1), Path("d"))
    assert (seen["plan"].seed, seen["plan"].image_size, seen["plan"].noise) == (9, 64, 0.1)
    assert seen["policy"] is None
    assert "3 solved and 1 failed episodes, 321 frames" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        "--out d",
        "--source expert",
        "--expert --out d --tasks a",
        "--expert --out d --processes 0",
        "--expert",
    ],
)
def test_unusable_options_end_with_code_2(arguments):
    with pytest.raises(SystemExit) as ending:
        ingest.main(arguments.split())
    assert ending.value.code == 2
