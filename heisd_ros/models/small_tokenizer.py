"""The tokenizer of the small checkpoint: a Llama-style BPE whose pieces are whole words.

Llama-2's own vocabulary may not be shipped. This one gives the prompt template, the common words
and every ASCII character the ids that Llama-2 gives them, so the fixed parts of a prompt look the
same to a decoder; the other words of the LIBERO instructions are one piece each, at ids that an
OpenVLA prompt never uses. Anything else falls back to characters and bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from heisd_ros.errors import DataError

SPACE = "▁"
"""SentencePiece's visible space; as a piece of its own it is OpenVLA's `empty` token."""

EMPTY_ID = 29871
"""OpenVLA ends every prompt with this id."""

BOS_ID = 1

LAST_FREE_ID = 31743
"""New pieces take the ids from here downwards: Llama-2 has rare ideographs there, and the next id
up is the first action token."""

PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
"""The prompt that OpenVLA was trained with; the instruction is lower case."""

TEMPLATE_IDS = {
    "▁In": 512, "▁What": 1724, "▁action": 3158, "▁should": 881, "▁robot": 19964, "▁take": 2125,
    "Out": 3744,
}  # fmt: skip
"""Ids of the template's pieces in Llama-2, beside those that are words or characters."""

WORD_IDS = {
    "alphabet": 22968, "and": 322, "basket": 25972, "between": 1546, "black": 4628, "both": 1716,
    "cabinet": 28966, "front": 4565, "in": 297, "it": 372, "left": 2175, "middle": 7256,
    "of": 310, "on": 373, "open": 1722, "pick": 5839, "place": 2058, "plate": 15284,
    "push": 5503, "put": 1925, "red": 2654, "soup": 22300, "the": 278, "to": 304, "top": 2246,
    "turn": 2507, "up": 701, "wine": 19006,
}  # fmt: skip
"""Words of the LIBERO instructions whose Llama-2 ids are known."""

CHARACTER_IDS = {
    **{c: 29871 + i for i, c in enumerate("▁etainorsldhcumpgf.by,wvk1)(-0:IS")},
    "2": 29906, "C": 29907, '"': 29908, "A": 29909, "T": 29911, "/": 29914, "'": 29915,
    "x": 29916, "_": 29918, "z": 29920, "E": 29923, "M": 29924, "P": 29925, "j": 29926,
    "D": 29928, "9": 29929, "L": 29931, "B": 29933, "R": 29934, "q": 29939, "N": 29940,
    "3": 29941, "F": 29943, "5": 29945, "4": 29946, "8": 29947, "O": 29949, "H": 29950,
    "6": 29953, "G": 29954, "7": 29955, "W": 29956, "V": 29963, "U": 29965, "J": 29967,
    "K": 29968, "?": 29973, "Y": 29979, "Q": 29984, "X": 29990, "!": 29991, "Z": 29999,
}  # fmt: skip
"""ASCII characters at their Llama-2 ids."""

NEW_WORDS = [
    "at",
    "back",
    "bbq",
    "book",
    "bottle",
    "bottom",
    "bowl",
    "box",
    "butter",
    "caddy",
    "center",
    "cheese",
    "chocolate",
    "close",
    "compartment",
    "cookie",
    "cream",
    "drawer",
    "dressing",
    "from",
    "frying",
    "inside",
    "juice",
    "ketchup",
    "microwave",
    "milk",
    "moka",
    "mug",
    "next",
    "off",
    "orange",
    "pan",
    "pot",
    "pots",
    "pudding",
    "rack",
    "ramekin",
    "right",
    "salad",
    "sauce",
    "shelf",
    "stack",
    "stove",
    "table",
    "them",
    "tomato",
    "tray",
    "under",
    "white",
    "wooden",
    "yellow",
]
"""The other words of the 130 LIBERO instructions."""


def write_tokenizer(folder: str | Path, words: Iterable[str] = ()) -> None:
    """Write `tokenizer.json`, readable by `tokenizers` and `PreTrainedTokenizerFast`.

    Args:
        folder: An existing folder.
        words: Lower-case words that shall be one piece each, beside those of LIBERO.

    Raises:
        DataError: If a word is not plain lower-case ASCII.
    """
    content = json.dumps(tokenizer_table(words), ensure_ascii=False, indent=1)
    (Path(folder) / "tokenizer.json").write_text(content, encoding="utf-8")


def tokenizer_table(words: Iterable[str] = ()) -> dict[str, Any]:
    """Return the content of `tokenizer.json`; the same words always give the same ids."""
    vocabulary, merges = _pieces(sorted({*NEW_WORDS, *words} - set(WORD_IDS)))
    specials = [_special(i, text) for i, text in enumerate(("<unk>", "<s>", "</s>"))]
    spaces = [
        {"type": "Prepend", "prepend": SPACE},
        {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": specials,
        "normalizer": {"type": "Sequence", "normalizers": spaces},
        "pre_tokenizer": None,
        "post_processor": _bos_first(),
        "decoder": _decoder(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocabulary,
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }


def _pieces(new_words: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return piece -> id and the merge rules.

    A word is built from the left, one character at a time. All rules of a word start with its
    first character behind a space, so no two rules ever compete for the same character, and a
    text is always cut into its longest known beginnings.
    """
    for word in new_words:
        if not (word.isascii() and word.isalpha() and word.islower()):
            raise DataError(f"a word must be lower-case ASCII letters, got {word!r}")
    fixed = {**TEMPLATE_IDS, **{SPACE + word: i for word, i in WORD_IDS.items()}}
    vocabulary = {"<unk>": 0, "<s>": BOS_ID, "</s>": 2}
    vocabulary.update({f"<0x{byte:02X}>": 3 + byte for byte in range(256)})
    vocabulary.update(CHARACTER_IDS)
    vocabulary.update(fixed)
    merges: dict[tuple[str, str], None] = {}
    free = LAST_FREE_ID
    # Whole words first, so that another list of words moves only the ids of the stumps.
    for piece in [SPACE + word for word in new_words]:
        vocabulary[piece], free = free, free - 1
    for piece in (*sorted(fixed), *(SPACE + word for word in new_words)):
        for end in range(1, len(piece)):
            merges[piece[:end], piece[end]] = None
            if piece[: end + 1] not in vocabulary:
                vocabulary[piece[: end + 1]], free = free, free - 1
    return dict(sorted(vocabulary.items(), key=lambda item: item[1])), list(merges)


def _special(number: int, text: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": text, **flags, "special": True}


def _bos_first() -> dict[str, Any]:
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    single = [bos, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    tokens = {"<s>": {"id": "<s>", "ids": [BOS_ID], "tokens": ["<s>"]}}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}


def _decoder() -> dict[str, Any]:
    spaces = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    steps = [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    return {"type": "Sequence", "decoders": steps}
