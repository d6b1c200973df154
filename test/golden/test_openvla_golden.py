"""Our network against numbers recorded from the reference implementation of OpenVLA.

The tolerances are what the reference's own mutations break: tanh GELU moves patches by 1.2e-3,
an epsilon of 1e-5 moves them by 6e-5 and the logits by 3e-4, while the tokens stay the same.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heisd_ros.action_space.tokenizer import ActionTokenizer  # noqa: E402
from heisd_ros.draft.tree import DraftTree  # noqa: E402
from heisd_ros.models.openvla import OpenVlaTarget  # noqa: E402
from heisd_ros.types import Frame  # noqa: E402

DEFAULT = Path(__file__).parents[3] / "shared" / "data" / "openvla_golden"
GOLDEN = Path(os.environ.get("HEISD_GOLDEN_DIR", DEFAULT))

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not (GOLDEN / "golden_openvla_tiny.npz").is_file(),
        reason=f"NOT CHECKED AGAINST THE REFERENCE: set HEISD_GOLDEN_DIR, nothing in {GOLDEN}",
    ),
]

CASES = range(4)
ACTIONS = slice(31744, 32000)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "golden_openvla_tiny.npz") as content:
        return dict(content)


@pytest.fixture(scope="module")
def target():
    return OpenVlaTarget.from_pretrained(GOLDEN / "tiny-openvla", "cpu", "float32")


def instruction(golden, case):
    text = str(golden[f"prompt{case}_text"])
    return text.removeprefix("In: What action should the robot take to ").removesuffix("?\nOut:")


def begin(target, golden, case, draft=None):
    features = target.encode([Frame(golden[f"image{case}"], "third_person", 0)])
    return target.start(target.prompt(instruction(golden, case)), features.patches, draft)


def action_logits(target, answer):
    with torch.inference_mode():
        return target.network.language_model.logits(answer.hidden, ACTIONS).numpy()


def greedy(target, answer, count):
    """Return `count` tokens, hidden states and action logits by autoregression."""
    tokens, hidden, logits = [], [], []
    row = 0
    while True:
        tokens.append(int(answer.target_next[row]))
        hidden.append(answer.hidden[row].numpy())
        logits.append(action_logits(target, answer)[row])
        if len(tokens) == count:
            return np.array(tokens), np.array(hidden), np.array(logits)
        answer = target.verify(DraftTree.chain(tokens[-1:]))
        target.accept([0])
        row = 1


@pytest.mark.parametrize("case", CASES)
def test_pixels_equal_the_reference(target, golden, case):
    pixels = target.preprocess([golden[f"image{case}"]])[0].numpy()
    assert np.abs(pixels[:, 3::16, 5::16] - golden[f"pixel_sub{case}"]).max() <= 1e-6
    mean = pixels.astype(np.float64).mean((1, 2))
    np.testing.assert_allclose(mean, golden[f"pixel_mean{case}"], atol=1e-6)
    spread = pixels.astype(np.float64).std((1, 2), ddof=1)
    np.testing.assert_allclose(spread, golden[f"pixel_std{case}"], atol=1e-6)


@pytest.mark.parametrize(("case", "stride"), [(0, 1), (3, 8)])
def test_patches_and_projector_equal_the_reference(target, golden, case, stride):
    patches = target.encode([Frame(golden[f"image{case}"], "third_person", 0)]).patches[0]
    with torch.inference_mode():
        projected = target.network.projector(patches)
    recorded = golden[f"case{case}_patch_features"], golden[f"case{case}_projected"]
    assert np.abs(patches[::stride].numpy() - recorded[0]).max() <= 1e-5
    assert np.abs(projected[::stride].numpy() - recorded[1]).max() <= 1e-5


def test_all_twelve_prompts_have_the_reference_ids_and_end_in_the_empty_token(target, golden):
    prompts = json.loads(str(golden["prompts_json"]))
    items = prompts.items() if isinstance(prompts, dict) else prompts
    pairs = [(text, ids) for text, ids in items]
    assert len(pairs) == 12
    head, tail = "In: What action should the robot take to ", "?\nOut:"
    for text, ids in pairs:
        words = text.removeprefix(head).removesuffix(tail)
        assert target.prompt(words).tolist() == [*ids, 29871]
        assert target.prompt(words.upper()).tolist() == [*ids, 29871]


@pytest.mark.parametrize("case", CASES)
def test_autoregression_equals_the_reference(target, golden, case):
    tokens, hidden, logits = greedy(target, begin(target, golden, case), 7)
    assert tokens.tolist() == golden[f"case{case}_tokens"].tolist()
    assert np.abs(hidden - golden[f"case{case}_step_hidden"]).max() <= 5e-5
    assert np.abs(logits - golden[f"case{case}_step_logits"]).max() <= 1e-4
    values = ActionTokenizer().decode(tokens)
    action = target.statistics("libero_goal").denormalize(values)
    np.testing.assert_allclose(action, golden[f"case{case}_action"], rtol=0, atol=1e-12)


def test_other_statistics_keys_and_an_action_of_eight_axes(target, golden):
    tokens, _, _ = greedy(target, begin(target, golden, 0), 8)
    values = ActionTokenizer().decode(tokens)
    bridge = target.statistics("bridge_orig").denormalize(values[:7])
    np.testing.assert_allclose(bridge, golden["case0_action_bridge_orig"], rtol=0, atol=1e-12)
    eight = target.statistics("tiny_8dof").denormalize(values)
    np.testing.assert_allclose(eight, golden["case0_action_tiny_8dof"], rtol=0, atol=1e-12)


def test_leaving_out_the_empty_token_gives_the_other_recorded_tokens(target, golden):
    # Guards the golden file itself: the empty token must be what makes the difference.
    features = target.encode([Frame(golden["image0"], "third_person", 0)])
    short = target.prompt(instruction(golden, 0))[:-1]
    tokens, _, _ = greedy(target, target.start(short, features.patches), 7)
    assert tokens.tolist() == golden["case0_tokens_without_29871"].tolist()
    assert tokens.tolist() != golden["case0_tokens"].tolist()


def check_drafts(target, golden, case, tree, answer):
    """Every node's answer must be the teacher-forced answer of the draft it belongs to."""
    logits = action_logits(target, answer)
    for draft, argmax in enumerate(golden[f"case{case}_draft_argmax"]):
        node = -1
        rows = [0]
        for token in golden[f"case{case}_draft_tokens"][draft]:
            below = np.flatnonzero((tree.parent == node) & (tree.tokens == token))
            node = int(below[0])
            rows.append(node + 1)
        assert answer.target_next[rows].tolist() == argmax.tolist()
        if case == 0:
            assert np.abs(logits[rows] - golden["case0_draft_logits"][draft]).max() <= 1e-4


@pytest.mark.parametrize("case", CASES)
def test_three_drafts_as_one_tree_in_the_prefill(target, golden, case):
    tree = DraftTree.from_paths(golden[f"case{case}_draft_tokens"].tolist())
    assert len(tree) == 17  # 21 tokens, of which 3 + 1 are shared with the first draft
    check_drafts(target, golden, case, tree, begin(target, golden, case, tree))


@pytest.mark.parametrize("case", CASES)
def test_three_drafts_as_one_tree_after_the_prefill(target, golden, case):
    tree = DraftTree.from_paths(golden[f"case{case}_draft_tokens"].tolist())
    begin(target, golden, case)
    check_drafts(target, golden, case, tree, target.verify(tree))


@pytest.mark.parametrize("case", CASES)
def test_continuing_after_three_accepted_nodes_equals_autoregression(target, golden, case):
    drafts = golden[f"case{case}_draft_tokens"]
    # The greedy draft last, so that the accepted rows do not lie at the front of the tree.
    tree = DraftTree.from_paths(drafts[[2, 1, 0]].tolist())
    begin(target, golden, case, tree)
    path, node = [], -1
    for token in drafts[0][:3]:
        node = int(np.flatnonzero((tree.parent == node) & (tree.tokens == token))[0])
        path.append(node)
    target.accept(path)
    tokens, _, logits = greedy(target, target.verify(DraftTree.from_paths([])), 4)
    assert tokens.tolist() == golden[f"case{case}_tokens"][3:].tolist()
    assert np.abs(logits - golden[f"case{case}_step_logits"][3:]).max() <= 1e-4
