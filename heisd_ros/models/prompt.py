"""From an instruction to OpenVLA's prompt ids.

Only the file `tokenizer.json` is read, with the `tokenizers` package: no automatic class, no remote
code, no question on the terminal, and the same ids whatever version of transformers is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.errors import MissingDependencyError, ModelError
from heisd_ros.types import IntArray

TEMPLATE = "In: What action should the robot take to {instruction}?\nOut:"
EMPTY_PIECE = "▁"
LLAMA_VOCAB = 32000
LLAMA_EMPTY_ID = 29871
"""The trained models always saw this id before the action; without it every token changes."""
LLAMA_TAIL = (13, 3744, 29901)
r"""Llama-2's ids of "\nOut:"."""

_REMEMBERED = 256


class PromptEncoder:
    """Tokenises instructions; remembers the last few hundred."""

    def __init__(self, file: Path, vocab_size: int) -> None:
        """Read a tokenizer.

        Args:
            file: `tokenizer.json` of the checkpoint.
            vocab_size: Unpadded vocabulary; 32000 means Llama-2's, whose ids are checked.

        Raises:
            ModelError: If the file is missing, damaged, or lacks the empty token.
        """
        self._tokenizer = _read(file)
        self._vocab_size = vocab_size
        self._known: dict[str, IntArray] = {}
        found = self._tokenizer.token_to_id(EMPTY_PIECE)
        if found is None or (vocab_size == LLAMA_VOCAB and found != LLAMA_EMPTY_ID):
            raise ModelError(
                f"{file}: the empty token {EMPTY_PIECE!r} must have id {LLAMA_EMPTY_ID} in "
                f"Llama-2's vocabulary, got {found}; it is not this checkpoint's tokenizer"
            )
        self.empty_id = int(found)

    def __call__(self, instruction: str) -> IntArray:
        """Return int64 (L,): BOS first, the empty token last.

        Raises:
            ModelError: If the instruction is blank or the tokenizer adds no BOS.
        """
        if instruction not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[instruction] = self._encode(instruction)
        return np.array(self._known[instruction])

    def _encode(self, instruction: str) -> IntArray:
        words = instruction.strip().lower()
        if not words:
            raise ModelError("the instruction is blank; say what the robot shall do")
        ids = self._tokenizer.encode(TEMPLATE.format(instruction=words)).ids
        if ids[0] != self._tokenizer.token_to_id("<s>"):
            raise ModelError("the tokenizer does not put <s> first; take the checkpoint's own file")
        if ids[-1] != self.empty_id:
            ids.append(self.empty_id)
        return np.array(ids, dtype=np.int64)

    def check(self, n_bins: int) -> None:
        """Refuse a tokenizer whose prompt would not look like the trained one.

        Raises:
            ModelError: If the tail has other ids than Llama-2's, or text uses action ids.
        """
        ids = self("pick up the bowl")
        tail = tuple(ids[-4:-1].tolist())
        if self._vocab_size == LLAMA_VOCAB and tail != LLAMA_TAIL:
            raise ModelError(
                f"prompt_tail: the prompt must end in {LLAMA_TAIL} and {LLAMA_EMPTY_ID}, "
                f"got {tail}; the tokenizer does not belong to this checkpoint"
            )
        if int(ids.max()) >= self._vocab_size - n_bins:
            raise ModelError(
                f"token_range: text has id {int(ids.max())}, but the ids from "
                f"{self._vocab_size - n_bins} on are actions; check text_config.vocab_size and "
                "pad_to_multiple_of in config.json"
            )


def _read(file: Path) -> Any:  # noqa: ANN401  (tokenizers is untyped and imported late)
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingDependencyError(
            "tokenizers is needed to read prompts: pip install tokenizers"
        ) from error
    if not file.is_file():
        raise ModelError(f"{file} is missing; copy tokenizer.json from the checkpoint's source")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises bare Exception for a damaged file
        raise ModelError(f"{file} is damaged: {error}; copy it again") from error
