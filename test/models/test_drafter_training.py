"""Drafter training: the target's own features, the loss by hand, a run that learns and resumes."""

import json

import numpy as np
import pytest
import torch

from heisd_ros import cli
from heisd_ros.demonstrations.episode import Episode, save_episode
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import DataError, ModelError
from heisd_ros.models.draft_block import DraftBlock
from heisd_ros.models.draft_head import EagleDraftHead
from heisd_ros.models.drafter_features import (
    DRAFTED,
    FeatureFile,
    FeatureSet,
    collect_features,
    step_features,
)
from heisd_ros.models.drafter_losses import drafter_loss, evaluate
from heisd_ros.models.drafter_training import (
    DrafterOptions,
    DrafterTrainer,
    train_drafter,
    training_folder,
)

ACTIONS = slice(31744, 32000)
CAMERAS = ("third_person",)


def episode(seed, steps, text="pick up the bowl", success=True):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (steps, 1, 48, 48, 3), dtype=np.uint8)
    actions, state = np.zeros((steps, 7), np.float32), np.zeros((steps, 8), np.float32)
    return Episode(images, actions, state, text, CAMERAS, 20.0, success=success)


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    """Twelve short episodes, prompts of two lengths, and a failed one."""
    folder = tmp_path_factory.mktemp("demos")
    for number in range(12):
        text = "pick up the bowl" if number % 2 else "open the top drawer of the cabinet"
        save_episode(folder / "suite" / f"ep_{number:02}.npz", episode(number, 4, text))
    save_episode(folder / "suite" / "ep_99.npz", episode(99, 4, success=False))
    return folder


@pytest.fixture(scope="module")
def files(target, demos, tmp_path_factory):
    out = tmp_path_factory.mktemp("features")
    return collect_features(target, target, demos, out, cameras=CAMERAS, every=2)


@torch.inference_mode()
def test_features_are_those_of_the_targets_own_greedy_tokens(target, frame):
    features = target.encode([frame(3)])
    prompt = target.prompt("pick up the bowl")
    embeds, hidden = torch.from_numpy(step_features(target, prompt, features)).float()
    prefix = target.network.prefix(torch.as_tensor(prompt)[None], features.patches[None])[0]
    llama = target.network.language_model
    tokens = [int(target.start(prompt, features.patches).target_next[0])]
    while len(tokens) < 7:
        answer = target.verify(DraftTree.chain(tokens[-1:]))
        target.accept([0])
        tokens.append(int(answer.target_next[1]))
    whole = torch.cat((prefix, llama.embed_tokens(torch.tensor(tokens[:DRAFTED]))))
    torch.testing.assert_close(embeds, whole, atol=5e-3, rtol=5e-3)
    expected = llama.forward_sequence(whole[None])[0]
    torch.testing.assert_close(hidden, expected, atol=5e-3, rtol=5e-3)
    # The last five features are those in front of the tokens 1 .. 5: what a drafter drafts.
    drafted = llama.logits(expected[-DRAFTED:]).argmax(dim=-1)
    assert drafted.tolist() == tokens[1:6]


def test_successful_episodes_are_collected_once_and_every_twelfth_is_held_out(
    target, demos, files, monkeypatch
):
    assert [file.steps for file in files] == [2] * 12
    assert [file.held_out for file in files] == [False] * 11 + [True]
    assert len({file.length for file in files}) == 2

    def refuse(*_, **__):
        raise AssertionError("decoded again")

    monkeypatch.setattr("heisd_ros.models.drafter_features.step_features", refuse)
    folder = files[0].path.parent
    again = collect_features(target, target, demos, folder, cameras=CAMERAS, every=2)
    assert again == files


def test_demonstrations_without_the_models_camera_or_success_are_refused(target, demos, tmp_path):
    with pytest.raises(DataError, match=r"perception\.cameras"):
        collect_features(target, target, demos, tmp_path / "a", cameras=("wrist",))
    save_episode(tmp_path / "failed" / "ep.npz", episode(0, 2, success=False))
    with pytest.raises(DataError, match="no successful"):
        collect_features(target, target, tmp_path / "failed", tmp_path / "b", cameras=CAMERAS)


def test_batches_hold_prompts_of_one_length_and_every_step(tmp_path):
    paths = []
    for number, (steps, length) in enumerate([(3, 6), (1, 6), (4, 7)]):
        array = np.zeros((steps, 2, length, 1), np.float16)
        array += 10 * number + np.arange(steps)[:, None, None, None]
        np.save(tmp_path / f"{number}.npy", array)
        paths.append(FeatureFile(tmp_path / f"{number}.npy", steps, length, False))
    data, rng = FeatureSet(paths), np.random.default_rng(0)
    batches = [data.draw(4, rng) for _ in range(400)]
    assert {batch.shape[2] for batch in batches} == {6, 7}
    drawn = torch.cat([batch[:, 0, 0, 0] for batch in batches])
    values, counts = np.unique(drawn.numpy(), return_counts=True)
    assert values.tolist() == [0, 1, 2, 10, 20, 21, 22, 23]
    assert counts == pytest.approx([200] * 8, rel=0.3)  # 1600 draws of 8 equally likely steps
    assert len(data) == 8


def test_loss_is_smooth_l1_and_soft_cross_entropy():
    rows = torch.eye(4)
    wanted = torch.tensor([[[0.0, 0.0, 0.0, 0.0]]])
    predicted = torch.tensor([[[2.0, 0.0, 0.0, 0.5]]])
    loss = drafter_loss(predicted, wanted, rows)
    # |2| -> 2 - .5 = 1.5, |.5| -> .5 * .25 = .125, mean of four: 1.625 / 4.
    assert float(loss.features) == pytest.approx(0.40625)
    # Uniform truth: -mean(log softmax(2, 0, 0, .5)) = log(e^2 + 2 + e^.5) - 2.5 / 4.
    assert float(loss.tokens) == pytest.approx(np.log(np.e**2 + 2 + np.e**0.5) - 0.625)


def test_a_perfect_prediction_leaves_the_entropy_of_the_target():
    wanted = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    rows = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    loss = drafter_loss(wanted, wanted, rows)
    p = (wanted @ rows.T).softmax(dim=-1)
    assert float(loss.features) == 0
    assert float(loss.tokens) == pytest.approx(float(-(p * p.log()).sum(-1).mean()), rel=1e-5)


def test_rows_that_are_only_looked_at_need_not_be_returned(target):
    torch.manual_seed(0)
    block = DraftBlock(target.network.config.llm)
    embeds, hidden = torch.randn(2, 2, 9, 16)
    whole, part = block(embeds, hidden, 9), block(embeds, hidden, 5)
    torch.testing.assert_close(part, whole[:, -5:])


def test_training_lowers_the_loss_and_the_head_drafts_like_the_target(target, files, tmp_path):
    options = DrafterOptions(steps=60, batch=8, rate=5e-3, warm_up=5, noise=0.02)
    trainer = DrafterTrainer(target, files, options)
    rng = np.random.default_rng(5)
    batches = [trainer.train.draw(16, rng) for _ in range(4)]

    def measure():
        parts = []
        with torch.no_grad():
            for batch in batches:
                embeds, hidden = batch.unbind(dim=1)
                predicted = trainer.block(embeds[:, 1:], hidden[:, :-1], DRAFTED)
                loss = drafter_loss(predicted, hidden[:, -DRAFTED:], trainer.rows)
                parts.append((float(loss.features), float(loss.tokens)))
        near = evaluate(trainer.block, batches, trainer.rows)["near"]
        return *np.mean(parts, axis=0), np.mean(near)

    before = measure()
    trainer.run(tmp_path / "state.pt")
    after = measure()
    assert after[0] < 0.7 * before[0]
    assert after[1] < before[1] - 0.1
    assert after[2] > before[2]
    assert len(trainer.history[-1]["top1"]) == DRAFTED
    assert {"near", "chain", "features", "tokens"} <= set(trainer.history[-1])


def test_chain_counts_the_hits_in_a_row_and_builds_on_its_own_predictions(target, files):
    """A block that copies the true features would have a chain of five; any miss cuts it."""

    class Oracle:
        wrong = None

        def __call__(self, embeds, hidden, last):
            place = hidden.shape[1]
            answer = batch[:, 1, place : place + 1].clone()
            return -answer if place - (batch.shape[2] - DRAFTED) == self.wrong else answer

    trainer_rows = target.network.language_model.lm_head.weight[ACTIONS]
    batch = FeatureSet(files).draw(8, np.random.default_rng(0))
    oracle = Oracle()
    assert evaluate(oracle, [batch], trainer_rows)["chain"] == 5
    oracle.wrong = 2
    got = evaluate(oracle, [batch], trainer_rows)
    assert (got["chain"], got["top1"][3:]) == (2, [1, 1])


def test_an_interrupted_run_goes_on_where_it_was_saved(target, files, tmp_path):
    out = tmp_path / "head"
    train_drafter(target, files, out, DrafterOptions(steps=4, batch=2))
    state = torch.load(training_folder(out) / "state.pt", weights_only=True)
    assert state["step"] == 4
    log = train_drafter(target, files, out, DrafterOptions(steps=6, batch=2), resume=True)
    assert (log["steps"], len(log["history"])) == (6, 2)
    head = EagleDraftHead.from_pretrained(out, target)
    weight = torch.load(training_folder(out) / "state.pt", weights_only=True)["block"]["fc.weight"]
    torch.testing.assert_close(head.block.fc.weight, weight, atol=1e-3, rtol=1e-3)
    with pytest.raises(DataError, match="other"):
        train_drafter(target, files[1:], out, DrafterOptions(steps=8, batch=2), resume=True)
    with pytest.raises(ModelError, match="no training run"):
        train_drafter(target, files, tmp_path / "new", DrafterOptions(steps=1), resume=True)


def test_time_ends_a_run_too(target, files, tmp_path):
    trainer = DrafterTrainer(target, files, DrafterOptions(minutes=1e-5, batch=2))
    trainer.run(tmp_path / "state.pt")
    assert trainer.step >= 1
    assert trainer.progress() >= 1


def test_the_verb_trains_writes_and_resumes(checkpoint, demos, tmp_path, capsys):
    out = tmp_path / "head"
    common = ["train-drafter", "--checkpoint", str(checkpoint), "--demos", str(demos)]
    common += ["--out", str(out), "--batch", "2", "--every", "2"]
    assert cli.main([*common, "--steps", "3"]) == 0
    assert cli.main([*common, "--steps", "5", "--resume"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-2])["steps"] == 5
    assert json.loads((out / "training_log.json").read_text())["samples"] == 22
    assert (out / "model.safetensors").is_file()
