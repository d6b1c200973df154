"""A checkpoint folder in the layout of the Hugging Face OpenVLA export: reading and writing.

Read are `config.json`, `preprocessor_config.json`, `tokenizer.json`, the safetensors, and the
action statistics. Remote code named in `config.json` is never looked at.

Keys beyond the export's own, for small and OFT-like models: `timm_model_kwargs` (per tower
`embed_dim`, `depth`, `num_heads` and optionally `patch_size`, `mlp_ratio`, `mlp_hidden`),
`num_images_in_input`, `use_proprio` and `proprio_size`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from heisd_ros.errors import ModelError
from heisd_ros.models.llama import LlamaConfigView
from heisd_ros.models.network import NetworkConfig, OpenVlaNetwork, unfilled_network
from heisd_ros.models.preprocessing import Preprocessing
from heisd_ros.models.vision import TowerConfig
from heisd_ros.models.weights import load_state, save_state

__all__ = ["Checkpoint", "load_state", "network_config", "save_checkpoint", "save_state"]

DINO_ID = "vit_large_patch14_reg4_dinov2.lvd142m"
SIGLIP_ID = "vit_so400m_patch14_siglip_224"
TOWERS = {
    DINO_ID: TowerConfig(1024, 24, 16, 4096, prefix_tokens=5, layer_scale=True),
    SIGLIP_ID: TowerConfig(1152, 27, 16, 4304),
}
MLP_RATIOS = {DINO_ID: 4.0, SIGLIP_ID: 3.7362}
BACKBONE = "dinosiglip-vit-so-224px"
DEFAULT_PADDING = 64
DEFAULT_BINS = 256


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder whose description has been read and checked, weights not yet.

    Attributes:
        folder: The folder.
        network: Shape of the network.
        preprocessing: How pictures become pixel values.
    """

    folder: Path
    network: NetworkConfig
    preprocessing: Preprocessing

    @classmethod
    def open(cls, path: str | Path) -> Checkpoint:
        """Read the description of a local checkpoint folder; never touches the network.

        Raises:
            ModelError: If the folder, a file or a key is missing, or the model is of another kind.
        """
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise ModelError(
                f"checkpoint {str(path)!r} is not a folder on this machine; nothing is downloaded "
                "here: fetch it first, e.g. `hf download NAME --local-dir FOLDER`, and give FOLDER"
            )
        network = network_config(_read_json(folder / "config.json"))
        preprocessing = Preprocessing.from_json(_read_json(folder / "preprocessor_config.json"))
        if preprocessing.image_size != network.dino.image_size:
            raise ModelError(
                f"{folder}: config.json has pictures of {network.dino.image_size} px, "
                f"preprocessor_config.json of {preprocessing.image_size} px"
            )
        return cls(folder, network, preprocessing)

    def load(self, device: torch.device, dtype: torch.dtype) -> tuple[OpenVlaNetwork, str]:
        """Build the network and fill it; also return the hash of the vision weights.

        Raises:
            ModelError: If a weight is missing, truncated or of another shape.
        """
        network = unfilled_network(self.network)
        vision_hash = load_state(network, self.folder, device=device, dtype=dtype)
        return network.eval().requires_grad_(False), vision_hash


def network_config(config: Mapping[str, Any]) -> NetworkConfig:
    """Read `config.json`.

    Raises:
        ModelError: If the model is not an OpenVLA with both towers, or its sizes are impossible.
    """
    kind, backbone = config.get("model_type"), config.get("vision_backbone_id")
    if kind != "openvla" or backbone != BACKBONE:
        raise ModelError(
            f"config.json: expected model_type openvla with vision_backbone_id {BACKBONE}, "
            f"got {kind!r} with {backbone!r}; other backbones are not supported"
        )
    ids = tuple(config.get("timm_model_ids", (DINO_ID, SIGLIP_ID)))
    if ids != (DINO_ID, SIGLIP_ID):
        raise ModelError(f"config.json: timm_model_ids must be {DINO_ID}, {SIGLIP_ID}; got {ids}")
    if "text_config" not in config:
        raise ModelError("config.json: text_config is missing")
    sizes = config.get("image_sizes", [224, 224])
    if len(set(sizes)) != 1:
        raise ModelError(f"config.json: both image_sizes must be equal, got {sizes}")
    changes: Sequence[Mapping[str, Any]] = config.get("timm_model_kwargs") or ({}, {})
    state_size = int(config.get("proprio_size", 0)) if config.get("use_proprio") else 0
    if config.get("use_proprio") and state_size <= 0:
        raise ModelError("config.json: use_proprio needs proprio_size, the length of the state")
    return _checked(
        NetworkConfig(
            dino=_tower(DINO_ID, changes[0], int(sizes[0])),
            siglip=_tower(SIGLIP_ID, changes[1], int(sizes[0])),
            llm=LlamaConfigView.from_text_config(config["text_config"]),
            views=int(config.get("num_images_in_input", 1)),
            state_size=state_size,
            pad_to_multiple_of=int(config.get("pad_to_multiple_of", DEFAULT_PADDING)),
            n_bins=int(config.get("n_action_bins", DEFAULT_BINS)),
        )
    )


def config_json(network: NetworkConfig) -> dict[str, Any]:
    """Return the content of a `config.json`, the inverse of `network_config`."""
    llm = network.llm
    return {
        "model_type": "openvla",
        "vision_backbone_id": BACKBONE,
        "llm_backbone_id": "llama2-7b-pure",
        "arch_specifier": "no-align+fused-gelu-mlp",
        "use_fused_vision_backbone": True,
        "timm_model_ids": [DINO_ID, SIGLIP_ID],
        "timm_model_kwargs": [_tower_json(network.dino), _tower_json(network.siglip)],
        "image_sizes": [network.dino.image_size] * 2,
        "image_resize_strategy": "resize-naive",
        "num_images_in_input": network.views,
        "use_proprio": network.state_size > 0,
        "proprio_size": network.state_size,
        "pad_to_multiple_of": network.pad_to_multiple_of,
        "n_action_bins": network.n_bins,
        "text_config": {
            "model_type": "llama",
            "hidden_size": llm.hidden,
            "num_hidden_layers": llm.layers,
            "num_attention_heads": llm.heads,
            "num_key_value_heads": llm.kv_heads,
            "intermediate_size": llm.ffn,
            "vocab_size": llm.vocab,
            "rms_norm_eps": llm.rms_eps,
            "rope_theta": llm.rope_theta,
            "tie_word_embeddings": llm.tie,
        },
    }


def save_checkpoint(
    folder: str | Path,
    network: OpenVlaNetwork,
    *,
    statistics: Mapping[str, Any],
    preprocessing: Preprocessing | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write everything but the tokenizer: description, weights and statistics.

    Args:
        folder: Made if it does not exist.
        network: The trained network.
        statistics: Training set -> `{"action": {"q01", "q99", "mask"}, "proprio": {...}}`.
        preprocessing: None for OpenVLA's own at the network's picture size.
        dtype: Type of the stored weights.
    """
    write_description(folder, network.config, statistics=statistics, preprocessing=preprocessing)
    save_state(network, folder, dtype=dtype)


def write_description(
    folder: str | Path,
    network: NetworkConfig,
    *,
    statistics: Mapping[str, Any],
    preprocessing: Preprocessing | None = None,
) -> None:
    """Write everything but weights and tokenizer; arguments as in `save_checkpoint`."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    preprocessing = preprocessing or Preprocessing(network.dino.image_size)
    files = {
        "config.json": {**config_json(network), "norm_stats": dict(statistics)},
        "preprocessor_config.json": preprocessing.to_json(),
        "dataset_statistics.json": dict(statistics),
    }
    for name, content in files.items():
        (target / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _tower(name: str, changes: Mapping[str, Any], image_size: int) -> TowerConfig:
    base = TOWERS[name]
    dim = int(changes.get("embed_dim", base.dim))
    ratio = float(changes.get("mlp_ratio", MLP_RATIOS[name]))
    return replace(
        base,
        dim=dim,
        depth=int(changes.get("depth", base.depth)),
        heads=int(changes.get("num_heads", base.heads)),
        mlp_hidden=int(changes.get("mlp_hidden", int(dim * ratio))),
        patch_size=int(changes.get("patch_size", base.patch_size)),
        image_size=image_size,
    )


def _tower_json(tower: TowerConfig) -> dict[str, int]:
    return {
        "embed_dim": tower.dim,
        "depth": tower.depth,
        "num_heads": tower.heads,
        "mlp_hidden": tower.mlp_hidden,
        "patch_size": tower.patch_size,
    }


def _checked(network: NetworkConfig) -> NetworkConfig:
    for name, tower in (("DINOv2", network.dino), ("SigLIP", network.siglip)):
        if tower.depth < 2 or tower.heads < 1 or tower.dim % tower.heads:
            raise ModelError(
                f"config.json: {name} needs depth >= 2 and heads that divide its {tower.dim} "
                f"channels, got depth {tower.depth} and {tower.heads} heads"
            )
        if tower.image_size % tower.patch_size:
            raise ModelError(
                f"config.json: {name} pictures of {tower.image_size} px cannot be cut into "
                f"patches of {tower.patch_size} px"
            )
    if network.dino.patches != network.siglip.patches:
        raise ModelError("config.json: both towers must cut the picture into the same patches")
    if network.views < 1 or network.vocab_size <= network.n_bins:
        raise ModelError(
            f"config.json: need num_images_in_input >= 1 and a vocabulary larger than "
            f"{network.n_bins} + {network.pad_to_multiple_of} rows, got {network.views} and "
            f"{network.llm.vocab}"
        )
    return network


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ModelError(f"{file} is missing; the folder is not a complete OpenVLA export")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not JSON: {error}; copy it again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} must hold a mapping, got {type(content).__name__}")
    return content
