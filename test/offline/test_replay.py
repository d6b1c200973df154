"""A bag through the policy without DDS: the same bytes every time, and it says what it compared."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("rosbags")
pytest.importorskip("matplotlib")

from offline import bag_maker as maker

from heisd_ros import cli
from heisd_ros.config import make_config
from heisd_ros.errors import DataError
from heisd_ros.offline.bag import CONFIG_FACT
from heisd_ros.offline.latency_model import DeviceProfile
from heisd_ros.offline.replay import replay_bag, write_replay
from heisd_ros.types import Action, DecodeReport, DecodeResult, DraftKind

CONFIG = make_config({"command.control_hz": 20.0, "trajectory.window": 3})


class StubPolicy:
    """Answers with tokens that depend on the pictures; remembers what it was shown."""

    def __init__(self, tokens=None):
        self.tokens, self.seen, self.ends = tokens, [], []

    def act(self, observation):
        self.seen.append(observation)
        if self.tokens is None:
            step = len(self.seen) - 1
            tokens = np.arange(31800, 31807) + step
        else:
            tokens = self.tokens
        shade = float(np.mean([frame.image.mean() for frame in observation.frames]))
        report = DecodeReport(
            DraftKind.AR, False, 1.0, 7, {"total": shade}, observation.metric.fused
        )
        action = Action(tokens, np.array([0.1 / 20, 0, 0, 0, 0, 0, 1.0]))
        return DecodeResult(action, report, observation.metric)

    def end_episode(self, success):
        self.ends.append(success)


@pytest.fixture
def bag(tmp_path):
    return maker.write_bag(tmp_path / "run", maker.episode())


def test_every_recorded_decision_is_made_again_from_the_same_inputs(bag):
    policy = StubPolicy()
    replay = replay_bag(bag, policy, CONFIG)
    assert [row["image_ns"] for row in replay.decisions] == [
        maker.START_NS + step * maker.PERIOD_NS for step in range(8)
    ]
    third = policy.seen[3]
    assert np.array_equal(third.frames[1].image, maker.picture(3, "wrist"))
    assert third.proprioception.gripper_opening == 0.0
    # Every pose up to the picture has reached the meter: window of 3.
    assert [observation.metric.samples for observation in policy.seen] == [1, 2, 3, 3, 3, 3, 3, 3]


def test_equal_decisions_agree_fully(bag):
    agreement = replay_bag(bag, StubPolicy(), CONFIG).agreement
    # Recorded tokens are 31800.. plus the step; the twist of 0.1 m/s is 0.1/20 m per step.
    assert agreement.compared == 8
    assert (agreement.same_actions, agreement.same_tokens, agreement.largest_bin) == (1.0, 1.0, 0)
    assert agreement.linear == pytest.approx(0.0, abs=1e-12)


def test_differences_are_measured(bag):
    agreement = replay_bag(bag, StubPolicy(np.arange(31800, 31807)), CONFIG).agreement
    # Recorded minus replayed is the number of the step: only step 0 agrees, step 7 is 7 bins off.
    assert agreement.same_actions == pytest.approx(1 / 8)
    assert agreement.largest_bin == 7
    assert "12.5 % of 8 actions" in agreement.sentence()


def test_twists_are_compared_where_no_decisions_were_recorded(tmp_path):
    messages = [*maker.inputs_only(maker.episode())]
    messages += [entry for entry in maker.episode() if entry[0] == "/twist_cmd"]
    bag = maker.write_bag(tmp_path / "run", messages)
    agreement = replay_bag(bag, StubPolicy(), CONFIG).agreement
    assert agreement.compared == 8
    assert np.isnan(agreement.same_actions)
    assert agreement.linear == pytest.approx(0.0, abs=1e-12)


def test_projected_time_is_named_as_such(bag):
    profile = DeviceProfile("box", "test", 0.0, 10.0, 20.0, 50.0, 5.0, 7.0, 1.0, 0.0, 100)
    note = replay_bag(bag, StubPolicy(), CONFIG, profile=profile).record.notes[1]
    # Vision 10, prefill 50 and six more tokens of 5 ms each.
    assert note.startswith("Projected, not measured: on the device of profile 'box'")
    assert note.endswith("an autoregressive one 90.0 ms.")


def test_the_policy_learns_how_an_episode_ended_before_the_next_one_begins(tmp_path):
    second = maker.START_NS + 100 * 10**9
    messages = [*maker.episode(4), *maker.episode(4, second)]
    policy = StubPolicy()
    replay_bag(maker.write_bag(tmp_path / "run", messages), policy, CONFIG)
    assert policy.ends == [True]
    assert [observation.metric.samples for observation in policy.seen] == [1, 2, 3, 3] * 2


def test_no_decision_is_never_a_success(tmp_path):
    messages = [entry for entry in maker.episode() if entry[0] != "/wrist/image"]
    late = maker.image(maker.START_NS + 10**10, 1, "wrist")
    bag = maker.write_bag(tmp_path / "run", [*messages, ("/wrist/image", late)])
    with pytest.raises(DataError, match=r"gave no decision.*unpaired"):
        replay_bag(bag, StubPolicy(), CONFIG)


def test_everything_is_written_and_wall_time_stays_out_of_the_decisions(bag, tmp_path):
    out = tmp_path / "out"
    page = write_replay(replay_bag(bag, StubPolicy(), CONFIG), bag, out)
    names = {path.name for path in out.iterdir() if path.suffix != ".png"}
    assert names == {
        "decisions.jsonl",
        "timings.jsonl",
        "agreement.json",
        "run.json",
        "report.html",
    }
    first = json.loads((out / "decisions.jsonl").read_text().splitlines()[0])
    assert not {key for key in first if "ms" in key or "time" in key}
    text = page.read_text(encoding="utf-8")
    assert "HeiSD replayed" in text
    assert "decoded again without moving an arm" in text
    assert "100.0 % of 8 actions" in text


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    pytest.importorskip("torch")
    from heisd_ros.models.tiny import make_tiny_checkpoint

    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), views=2, state_size=4)


@pytest.mark.torch
def test_two_replays_of_a_real_model_are_byte_equal(checkpoint, tmp_path, capsys):
    values = {
        "model.checkpoint": str(checkpoint),
        "model.device": "cpu",
        "model.threads": 1,
        "retrieval.store": "none",
        "decode.method": "ar",
    }
    custom = {CONFIG_FACT: json.dumps(values)}
    bag = maker.write_bag(tmp_path / "run", maker.episode(), custom=custom)
    for name in ("one", "two"):
        assert cli.main(["replay", "--bag", str(bag), "--out", str(tmp_path / name)]) == 0
    for file in ("decisions.jsonl", "agreement.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    rows = (tmp_path / "one" / "decisions.jsonl").read_text().splitlines()
    assert len(rows) == 8
    assert len({json.dumps(json.loads(row)["tokens"]) for row in rows}) > 1
    assert "8 decisions. Compared with the recording" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: maker.write_bag(path, []), "is empty"),
        (lambda path: path.mkdir(), "is not a bag"),
        (lambda path: None, "does not exist"),
    ],
)
def test_a_bad_bag_ends_with_one_sentence_and_an_exit_code(tmp_path, capsys, make, words):
    make(tmp_path / "run")
    assert cli.main(["replay", "--bag", str(tmp_path / "run")]) != 0
    error = capsys.readouterr().err
    assert words in error
    assert "run" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run_replay").exists()


def test_a_row_of_nan_is_written_as_null(bag, tmp_path):
    replay = replay_bag(bag, StubPolicy(), CONFIG)
    row = {**replay.decisions[0], "fused": float("nan")}
    write_replay(dataclasses.replace(replay, decisions=(row,)), bag, tmp_path / "out")
    text = (tmp_path / "out" / "decisions.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["fused"] is None
