"""Facts about a loaded OpenVLA checkpoint that other rooms ask for."""

from __future__ import annotations

import hashlib

from heisd_ros.action_space.statistics import ProprioStatistics, statistics_keys
from heisd_ros.errors import ModelError
from heisd_ros.models.checkpoint import Checkpoint
from heisd_ros.protocols import ModelInfo


def model_info(
    checkpoint: Checkpoint,
    vision_hash: str,
    pool: str,
    max_nodes: int,
    *,
    normalise: str = "blocks",
) -> ModelInfo:
    """Return what others need to know about a checkpoint.

    Args:
        checkpoint: Its description.
        vision_hash: Hash of the vision weights.
        pool: Pooling of the DINOv2 patches in the embedding.
        max_nodes: Largest draft tree.
        normalise: Of the embedding; the default leaves the fingerprint as it was without it.
    """
    network = checkpoint.network
    facts = f"{vision_hash} {checkpoint.preprocessing} {pool}"
    if normalise != "blocks":
        facts += f" {normalise}"
    return ModelInfo(
        path=str(checkpoint.folder),
        fingerprint=hashlib.sha256(facts.encode()).hexdigest()[:16],
        vocab_size=network.vocab_size,
        n_bins=network.n_bins,
        views=network.views,
        embedding_size=network.patch_dim,
        state_size=network.state_size,
        hidden_size=network.llm.hidden,
        max_nodes=max_nodes,
        statistics_keys=statistics_keys(checkpoint.folder),
    )


def state_statistics(checkpoint: Checkpoint, key: str) -> ProprioStatistics | None:
    """Return the statistics of the proprioceptive state; None if the model takes none.

    Raises:
        ModelError: If they describe a state of another size.
    """
    size = checkpoint.network.state_size
    if size == 0:
        return None
    found = ProprioStatistics.load(checkpoint.folder, key)
    if found.size != size:
        raise ModelError(
            f"statistics {found.key!r} describe a state of {found.size} values, but proprio_size "
            f"in config.json is {size}; take both from the same training run"
        )
    return found
