"""Normalised action values to token ids and back (OpenVLA's 256-bin action tokenizer)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.errors import ConfigError, DataError
from heisd_ros.types import BoolArray, FloatArray, IntArray

VOCAB_SIZE = 32000
"""Llama-2's own vocabulary; the 64 padding rows of the LM head are not part of it."""

N_BINS = 256
"""Bin edges on [-1, 1]. 256 edges make 255 centres, so two ids share the outermost centre."""


class ActionTokenizer:
    """Maps [-1, 1] onto the last `n_bins` token ids; larger values get smaller ids.

    Attributes:
        vocab_size: V, the unpadded vocabulary size.
        n_bins: Number of action ids and of bin edges.
        first_id: Smallest action id, V - n_bins (the open gripper).
        last_id: Largest action id, V - 1 (the value -1).
        edges: float64 (n_bins,), bin edges.
        centres: float64 (n_bins - 1,), what the ids decode to.

    Example:
        >>> tokenizer = ActionTokenizer()
        >>> tokenizer.encode([-1.0, 0.0, 1.0]).tolist()
        [31999, 31872, 31744]
    """

    def __init__(self, vocab_size: int = VOCAB_SIZE, n_bins: int = N_BINS) -> None:
        """Set up the bins.

        Raises:
            ConfigError: If the vocabulary cannot hold the bins.
        """
        if not 2 <= n_bins <= vocab_size:
            raise ConfigError(
                f"n_bins must be in [2, vocab_size={vocab_size}], got {n_bins}; "
                "take both from the checkpoint's config.json"
            )
        self.vocab_size = vocab_size
        self.n_bins = n_bins
        self.first_id = vocab_size - n_bins
        self.last_id = vocab_size - 1
        self.edges: FloatArray = np.linspace(-1.0, 1.0, n_bins)
        self.centres: FloatArray = (self.edges[:-1] + self.edges[1:]) / 2.0

    def encode(self, values: ArrayLike) -> IntArray:
        """Return the ids of normalised values, which are clipped to [-1, 1] first.

        This is a half-open bin search, not the nearest centre: the two differ at exactly 1.0,
        which is the open gripper.

        Args:
            values: Normalised values, any shape, finite.

        Returns:
            int64 ids in [first_id, last_id], same shape.

        Raises:
            DataError: If a value is not finite.
        """
        array = np.asarray(values, dtype=np.float64)
        if not np.isfinite(array).all():
            raise DataError(
                f"action values must be finite, got {array.tolist()}; drop this step instead of "
                "tokenising it"
            )
        bins = np.digitize(np.clip(array, -1.0, 1.0), self.edges)
        return np.asarray(self.vocab_size - bins, dtype=np.int64)

    def decode(self, ids: ArrayLike) -> FloatArray:
        """Return the bin centres of action ids, within half a bin of what was encoded.

        Args:
            ids: Token ids, any shape.

        Returns:
            float64 values in (-1, 1), same shape.

        Raises:
            DataError: If an id is not one of the `n_bins` action ids. Clipping it would turn a
                word of the language vocabulary into the strongest possible motion.
        """
        array = np.asarray(ids)
        wrong = ~self.is_action(array)
        if wrong.any():
            raise DataError(
                f"token ids must be action ids in [{self.first_id}, {self.last_id}], got "
                f"{np.unique(array[wrong]).tolist()}; the model was not in action mode (prompt, "
                "vocab_size or checkpoint is wrong)"
            )
        index = self.vocab_size - array.astype(np.int64) - 1
        # The smallest id has no bin: it stands for exactly 1.0, takes the last centre.
        return np.asarray(self.centres[np.minimum(index, self.n_bins - 2)])

    def is_action(self, ids: ArrayLike) -> BoolArray:
        """Return which of these numbers are action ids; bool, same shape.

        Raises:
            DataError: If `ids` are not integers.
        """
        array = np.asarray(ids)
        if array.dtype.kind not in "iu" and array.size:
            raise DataError(f"token ids must be integers, got dtype {array.dtype}")
        return np.asarray((array >= self.first_id) & (array <= self.last_id))
