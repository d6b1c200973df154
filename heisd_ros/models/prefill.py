"""The prefill that runs only what changed since the last one (VLA-Cache)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from heisd_ros.errors import ConfigError
from heisd_ros.models.network import OpenVlaNetwork
from heisd_ros.models.token_reuse import AttentionProbe, ReuseOptions, TokenReuse
from heisd_ros.models.tree_decoder import TreeDecoder
from heisd_ros.types import Float32Array, TokenTree, Verification


class ReusingPrefill:
    """Joins the decision what to reuse with the decoder that keeps the rows.

    Attributes:
        reused: Patches whose rows the last `start` did not run again.
    """

    def __init__(
        self,
        network: OpenVlaNetwork,
        decoder: TreeDecoder,
        options: ReuseOptions,
        *,
        compiled: bool = False,
    ) -> None:
        """Take the parts of one target.

        Raises:
            ConfigError: If an option is out of range, or attention is wanted of a compiled model.
        """
        if compiled and options.relevant > 0.0:
            raise ConfigError(
                "model.token_reuse_relevant needs the attention of one layer, which a compiled "
                "model does not show; set it to 0 or model.compile to false"
            )
        self._network, self._decoder = network, decoder
        self._reuse = TokenReuse(options)
        self._probe = AttentionProbe(network.language_model) if options.relevant > 0.0 else None
        self.reused = 0

    def drop(self) -> None:
        """Forget the rows kept for the next prefill."""
        self._reuse.drop()

    def start(
        self, prompt: Tensor, patches: Tensor, state: Tensor | None, draft: TokenTree | None
    ) -> Verification:
        """Run prompt, patches and draft tree; all rows if the last prefill is of no use.

        Args:
            prompt: int64 (L,).
            patches: (V, P, D).
            state: (1, state_size), normalised, or None.
            draft: Tree verified in the same forward; None for none.
        """
        ids, features = prompt.cpu().numpy(), patches.flatten(0, 1).float().cpu().numpy()
        again = self._reuse.plan(ids, features)
        count, rows = len(features), None
        if again is None:
            prefix = self._network.prefix(prompt[None], patches[None], state)
        else:
            changed = torch.from_numpy(again).to(prompt.device)
            prefix = self._network.changed_prefix(prompt, patches, changed, state)
            behind = np.arange(1 + count, len(ids) + self._network.config.inserted)
            rows = np.concatenate((1 + again, behind))
        try:
            answer = self._decoder.start(prefix, draft, rows)
        except BaseException:
            self._reuse.drop()  # some layers hold rows of this frame, others of the last
            raise
        relevance = self._relevance(prefix.shape[1], len(ids) - 1, count)
        self._reuse.commit(ids, features, again, relevance)
        self.reused = 0 if again is None else count - len(again)
        return answer

    def _relevance(self, rows: int, text: int, patches: int) -> Float32Array | None:
        """Return how much the text, the last rows, looked at each patch, float32 (P,)."""
        if self._probe is None:
            return None
        return self._probe.relevance(
            slice(rows - text, rows),
            slice(1, 1 + patches),
            self._decoder.committed,
            self._decoder.cache,
        )
