import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402

from heisd_ros.errors import ShapeError  # noqa: E402
from heisd_ros.models.llama import rotary_angles  # noqa: E402
from heisd_ros.models.openvla import OpenVlaTarget  # noqa: E402
from heisd_ros.models.preprocessing import Preprocessing  # noqa: E402
from heisd_ros.models.small_tokenizer import tokenizer_table  # noqa: E402
from heisd_ros.models.small_vla import (  # noqa: E402
    CompactVocabulary,
    SmallVla,
    SmallVlaShape,
    VlaBatch,
    run_rows,
)
from heisd_ros.models.training_run import prompt_ids  # noqa: E402
from heisd_ros.types import Frame  # noqa: E402

pytestmark = pytest.mark.torch

SHAPE = SmallVlaShape(
    image_size=32, patch_size=16, tower_dim=12, tower_heads=2, hidden=16, layers=3, heads=2, ffn=24
)
TEXTS = ("pick up the bowl", "put the bowl on the plate in the drawer")
STATISTICS = {
    "action": {"q01": [-1.0] * 6 + [0.0], "q99": [1.0] * 7, "mask": [True] * 6 + [False]},
    "proprio": {"q01": [-1.0] * 4, "q99": [1.0] * 4, "mask": [True] * 4},
}


@pytest.fixture
def prompts():
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_table()))
    return [prompt_ids(text, tokenizer) for text in TEXTS]


@pytest.fixture
def model(prompts):
    torch.manual_seed(0)
    model = SmallVla(SHAPE, CompactVocabulary(prompts, 31744, 256))
    with torch.no_grad():
        for parameter in model.network.language_model.parameters():
            parameter.mul_(5.0)  # so that no argmax hangs on a rounding
    return model


def batch_of(model, prompt, pixels, state, tokens):
    text = model.vocabulary.compact(np.concatenate([prompt[1:], tokens[:6]]))
    return VlaBatch(pixels, torch.from_numpy(text)[None], torch.tensor([len(prompt) - 1]), state)


def test_compact_numbers_lead_back_to_the_ids(model, prompts):
    vocabulary = model.vocabulary
    ids = np.concatenate([prompts[1], [31744, 31999]])
    assert np.array_equal(vocabulary.ids[vocabulary.compact(ids)], ids)
    assert len(vocabulary) == len(np.unique(np.concatenate(prompts))) + 256


def test_rows_of_the_last_layer_equal_the_whole_layer():
    torch.manual_seed(1)
    model = SmallVla(SHAPE, CompactVocabulary([np.array([1, 5])], 31744, 256))
    layer = model.network.language_model.layers[0]
    x = torch.randn(2, 9, SHAPE.hidden)
    angles = rotary_angles(torch.arange(9), SHAPE.hidden // SHAPE.heads, 10000.0)
    rows = torch.tensor([[0, 8], [3, 5]])
    whole = layer(x, angles, None)
    picked = run_rows(layer, x, angles, rows)
    torch.testing.assert_close(picked[0], whole[0, [0, 8]])
    torch.testing.assert_close(picked[1], whole[1, [3, 5]])
    with pytest.raises(ShapeError):
        run_rows(layer, x, angles, rows[:1])


def test_a_short_prompt_is_not_disturbed_by_the_padding_of_a_batch(model, prompts):
    pixels, state = torch.randn(2, 2, 6, 32, 32), torch.randn(2, 4)
    tokens = np.arange(31750, 31757)
    alone = [
        batch_of(model, prompts[i], pixels[i : i + 1], state[i : i + 1], tokens) for i in (0, 1)
    ]
    width = alone[1].text.shape[1]
    assert alone[0].text.shape[1] < width
    text = torch.cat([torch.nn.functional.pad(one.text, (0, width - one.text.shape[1]))
                      for one in alone])  # fmt: skip
    lengths = torch.cat([one.prompt_length for one in alone])
    together = model(VlaBatch(pixels, text, lengths, state)).logits
    for i in (0, 1):
        torch.testing.assert_close(model(alone[i]).logits[0], together[i], atol=2e-4, rtol=1e-4)


def test_the_export_decodes_what_the_training_forward_predicts(model, prompts, tmp_path):
    model.export(tmp_path, {"made_up": STATISTICS})
    target = OpenVlaTarget.from_pretrained(tmp_path, "cpu", "float32", self_check=False)
    # The file holds float16: round the trained weights alike before comparing.
    model.network.load_state_dict(
        {name: value.half().float() for name, value in model.network.state_dict().items()}
    )
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    state = np.array([0.1, -0.4, 0.9, 0.3], np.float32)
    tokens = np.array([31800, 31900, 31750, 31999, 31744, 31872, 31760])
    pixels = Preprocessing(32).pixels(list(images))[None]
    inputs = batch_of(model, prompts[1], pixels, torch.from_numpy(state)[None], tokens)
    expected = model(inputs).logits[0].argmax(dim=-1).numpy() + 31744

    features = target.encode(
        [Frame(image, name, 0) for image, name in zip(images, "ab", strict=True)]
    )
    assert np.array_equal(target.prompt(TEXTS[1]), prompts[1])
    from heisd_ros.draft.tree import DraftTree

    answer = target.start(prompts[1], features.patches, DraftTree.chain(tokens[:6]), state=state)
    assert np.array_equal(answer.target_next, expected)


def test_a_row_of_the_vocabulary_that_was_never_trained_is_zero(model, tmp_path):
    model.export(tmp_path, {"made_up": STATISTICS})
    head = OpenVlaTarget.from_pretrained(
        tmp_path, "cpu", "float32", self_check=False
    ).network.language_model.lm_head.weight
    assert head[:31744].abs().max() == 0.0
    assert head[31744:32000].abs().min(dim=1).values.max() > 0.0
    assert head[32000:].abs().max() == 0.0
