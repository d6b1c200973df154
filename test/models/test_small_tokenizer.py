import json

import pytest
from tokenizers import Tokenizer

from heisd_ros.errors import DataError
from heisd_ros.models.small_tokenizer import PROMPT, tokenizer_table, write_tokenizer

TEMPLATE_HEAD = [1, 512, 29901, 1724, 3158, 881, 278, 19964, 2125, 304]
TEMPLATE_TAIL = [29973, 13, 3744, 29901]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_str(json.dumps(tokenizer_table()))


def test_the_template_has_the_ids_of_llama(tokenizer):
    ids = tokenizer.encode(PROMPT.format(instruction="put both in the basket")).ids
    words = [1925, 1716, 297, 278, 25972]  # put both in the basket, in Llama-2
    assert ids == TEMPLATE_HEAD + words + TEMPLATE_TAIL


def test_every_word_of_an_instruction_is_one_piece(tokenizer):
    text = "pick up the black bowl next to the ramekin and place it on the plate"
    ids = tokenizer.encode(PROMPT.format(instruction=text)).ids
    assert len(ids) == len(TEMPLATE_HEAD) + len(text.split()) + len(TEMPLATE_TAIL)


@pytest.mark.parametrize("text", ["grasp the BLÜE cup", "pots pot po", "bowls,  twice", "日本"])
def test_any_text_survives_the_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_word_with_a_known_beginning_keeps_the_whole_word_inside(tokenizer):
    assert tokenizer.encode("bowls").tokens == ["<s>", "▁bowl", "s"]


def test_no_two_pieces_share_an_id_and_none_is_an_action(tokenizer):
    ids = list(tokenizer_table()["model"]["vocab"].values())
    assert len(ids) == len(set(ids))
    assert sorted(ids)[: 3 + 256] == list(range(3 + 256))
    # Ids from 31744 on are actions.
    assert max(ids) < 31744


def test_another_word_does_not_move_the_ids_of_the_fixed_pieces():
    before, after = (tokenizer_table(words)["model"]["vocab"] for words in ((), ("zucchini",)))
    assert before["▁plate"] == after["▁plate"] == 15284
    assert "▁zucchini" not in before
    assert "▁zucchini" in after


def test_a_word_with_capitals_is_refused():
    with pytest.raises(DataError, match="lower-case"):
        tokenizer_table(["Bowl"])


def test_transformers_reads_the_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    write_tokenizer(tmp_path)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert fast(PROMPT.format(instruction="turn")).input_ids[:4] == TEMPLATE_HEAD[:4]
