import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heisd_ros.models.auxiliary import AuxiliaryHeads  # noqa: E402
from heisd_ros.models.small_vla import SmallVlaShape  # noqa: E402
from heisd_ros.models.token_loss import token_loss  # noqa: E402
from heisd_ros.models.training import FlatWeights, TrainingOptions  # noqa: E402
from heisd_ros.models.training_data import (  # noqa: E402
    NO_AUGMENTATION,
    Augmentation,
    FrameSet,
    TrainingSet,
    draw,
    range_statistics,
)
from heisd_ros.models.training_run import Recipe, make_trainer  # noqa: E402

pytestmark = pytest.mark.torch

SHAPE = SmallVlaShape(
    image_size=32, patch_size=16, tower_dim=12, tower_heads=2, hidden=16, layers=2, heads=2, ffn=24
)


def frame_set(count=16):
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (count, 7)).astype(np.float32)
    actions[:, 6] = np.arange(count) % 2
    return FrameSet(
        images=rng.integers(0, 256, (count, 2, 32, 32, 3), dtype=np.uint8),
        state=rng.uniform(0.0, 0.08, (count, 4)).astype(np.float32),
        actions=actions,
        task=np.zeros(count, dtype=np.int64),
        weight=np.ones(count),
        held_out=np.arange(count) >= count - 4,
        goals=rng.uniform(-0.1, 0.1, (count, 2, 3)).astype(np.float32),
        goal_pixels=rng.uniform(0, 32, (count, 2, 2, 2)).astype(np.float32),
        kind_pixels=rng.uniform(0, 32, (count, 2, 3, 2, 2)).astype(np.float32),
    )


def trainer(options):
    frames = frame_set()
    text = "pick up the bowl"
    data = TrainingSet(frames, (text,), ("bowl", "plate", "hand"))
    recipe = Recipe(SHAPE, (text,), data.kinds, range_statistics(frames))
    return make_trainer(data, recipe, options)


def test_a_model_that_knows_nothing_pays_the_logarithm_of_the_whole_vocabulary():
    loss = token_loss(torch.zeros(1, 7, 256), torch.full((1, 7), 100))
    # All 32064 rows are equally likely; the weights of the seven tokens are 1 1 1 .3 .3 .3 1.
    assert float(loss) == pytest.approx(math.log(32064) * 4.9 / 7, rel=1e-5)


def test_a_near_miss_costs_less_than_a_far_one_but_not_for_the_gripper():
    def loss(dof, guess):
        logits = torch.zeros(1, 7, 256)
        logits[0, dof, guess] = 12.0
        return float(token_loss(logits, torch.full((1, 7), 100)))

    assert loss(0, 102) < loss(0, 120)
    assert loss(6, 102) == pytest.approx(loss(6, 120))


def test_flat_weights_and_the_module_are_the_same_memory():
    layer = torch.nn.Linear(2, 1)
    flat = FlatWeights(layer)
    flat.value.data.fill_(2.0)
    layer(torch.ones(1, 2)).sum().backward()
    assert layer.bias.item() == 2.0
    assert flat.value.grad.tolist() == [1.0, 1.0, 1.0]


def test_training_lowers_every_loss(tmp_path):
    options = TrainingOptions(steps=60, batch=8, workers=1, rate=5e-3, save_every_s=1e9, ema=0.9)
    run = trainer(options)
    losses = []
    learn = run._learn
    run._learn = lambda *args: losses.append(learn(*args)) or losses[-1]
    run.run(tmp_path / "state.pt", 0, 1)
    first, last = np.mean(losses[:5], axis=0), np.mean(losses[-5:], axis=0)
    assert (last < first).all(), (first, last)
    assert run.history[-1]["step"] == 60
    assert len(run.history[-1]["near"]) == 7


def test_a_resumed_run_ends_where_it_would_have_without_the_break(tmp_path):
    options = TrainingOptions(steps=2, batch=4, workers=1)
    first = trainer(options)
    first.run(tmp_path / "state.pt", 0, 1)
    second = trainer(options)
    second.load(tmp_path / "state.pt")
    assert second.step == 2
    assert torch.equal(first.weights.value, second.weights.value)
    assert torch.equal(first.average, second.average)
    assert second.progress() == 1.0


def test_a_shift_moves_picture_and_points_together():
    frames = frame_set(1)
    frames.images[:] = 0
    frames.images[0, :, 10, 20] = 255
    frames.goal_pixels[:] = (20.5, 10.5)
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(8):
        sample = draw(frames, np.array([0]), Augmentation(3, 0.0, 0.0, 0.0, 0.0), rng)
        x, y = sample.goal_pixels[0, 0, 0]
        row, column = np.argwhere(sample.levels[0, 0, :, :, 0] > 0.5)[0]
        assert (column + 0.5, row + 0.5) == (x, y)
        seen.add((x, y))
    assert len(seen) > 4


def test_without_augmentation_frames_come_back_unchanged():
    frames = frame_set(2)
    sample = draw(frames, np.array([1]), NO_AUGMENTATION, np.random.default_rng(0))
    np.testing.assert_allclose(sample.levels[0] * 255, frames.images[1], atol=1e-3)
    np.testing.assert_array_equal(sample.state[0], frames.state[1])


def test_a_quiet_axis_keeps_a_usable_range_and_the_gripper_is_unscaled():
    frames = frame_set()
    frames.actions[:, 3] = 0.0
    action = range_statistics(frames)["action"]
    assert (action["q01"][3], action["q99"][3]) == (pytest.approx(-0.1), pytest.approx(0.1))
    assert (action["q01"][6], action["q99"][6], action["mask"][6]) == (0.0, 1.0, False)


def test_points_outside_the_picture_are_not_looked_for():
    heads = AuxiliaryHeads(SHAPE, 1)
    pixels = torch.tensor([[20.0, 4.0], [-1.0, 4.0], [32.0, 0.0], [float("nan"), 3.0]])
    patch, offset, visible = heads._locate(pixels)
    assert visible.tolist() == [True, False, False, False]
    # Patches are 16 px in a 2 x 2 grid: (20, 4) is in patch 1, at (-0.25, -0.25) of its centre.
    assert patch[0].item() == 1
    assert offset[0].tolist() == [-0.25, -0.25]
