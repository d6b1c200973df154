"""Camera frames to patch features and the retrieval embedding (HeiSD section 4.1).

Both come from one pass: the embedding pools the patches that the target model is fed anyway, so a
retrieval query costs no second encoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heisd_ros.errors import ConfigError, DataError
from heisd_ros.models.preprocessing import Preprocessing
from heisd_ros.models.vision import VisionBackbone
from heisd_ros.perception.embedding import NORMALISATIONS, join_views
from heisd_ros.types import Float32Array, Frame, VisualFeatures

POOLS = ("mean", "last_patch")


class FrameEncoder:
    """Both towers, the preprocessing in front of them and the pooling behind."""

    def __init__(
        self,
        backbone: VisionBackbone,
        preprocessing: Preprocessing,
        views: int,
        *,
        pool: str = "mean",
        normalise: str = "blocks",
    ) -> None:
        """Join the parts.

        Args:
            backbone: Filled towers.
            preprocessing: The checkpoint's own.
            views: Views whose patches the target is fed, V.
            pool: Pooling of the DINOv2 patches, `mean` or `last_patch`.
            normalise: Of the embedding, `blocks` or `whole`; see `join_views`.

        Raises:
            ConfigError: If the pool or the normalisation is unknown.
        """
        if pool not in POOLS:
            raise ConfigError(f"perception.pool must be one of {', '.join(POOLS)}; got {pool!r}")
        if normalise not in NORMALISATIONS:
            raise ConfigError(
                f"perception.normalise must be one of {', '.join(NORMALISATIONS)}; got "
                f"{normalise!r}"
            )
        self._backbone, self._preprocessing = backbone, preprocessing
        self._views, self._pool, self._normalise = views, pool, normalise

    @torch.inference_mode()
    def encode_many(self, sets: Sequence[Sequence[Frame]]) -> list[VisualFeatures]:
        """Encode sets of frames, each in view order, in one batched pass.

        Raises:
            DataError: If the sets differ in length, are shorter than the number of views, or a
                picture is not uint8 (H, W, 3).
        """
        lengths = {len(frames) for frames in sets}
        if len(lengths) != 1 or min(lengths) < self._views:
            raise DataError(
                f"the model is fed {self._views} view(s): every set needs at least as many frames, "
                f"and all sets the same number; got {sorted(lengths)}"
            )
        pixels = self._preprocessing.pixels([frame.image for frames in sets for frame in frames])
        weight = self._backbone.featurizer.pos_embed
        patches = self._backbone(pixels.to(weight.device, weight.dtype))
        patches = patches.unflatten(0, (len(sets), lengths.pop()))  # (sets, frames, P, D)
        dino, siglip = self._pooled(patches)
        return [
            VisualFeatures(
                patches=patches[place, : self._views],
                embedding=join_views(
                    [tower[place, view] for view in range(len(frames)) for tower in (dino, siglip)],
                    normalise=self._normalise,
                ),
                stamp_ns=min(frame.stamp_ns for frame in frames),
            )
            for place, frames in enumerate(sets)
        ]

    def _pooled(self, patches: Tensor) -> tuple[Float32Array, Float32Array]:
        """Return (sets, frames, channels) of DINOv2 and of SigLIP."""
        split = self._backbone.dims[0]
        dino, siglip = patches[..., :split].float(), patches[..., split:].float()
        first = dino.mean(dim=2) if self._pool == "mean" else dino[:, :, -1]
        return first.cpu().numpy(), siglip.mean(dim=2).cpu().numpy()
