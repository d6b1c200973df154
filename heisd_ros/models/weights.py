"""Weights between a network and the safetensors of the Hugging Face export, both ways.

The names agree except in the language model, where the network joins the matrices that are applied
to the same input: queries, keys and values in one, gate and up in one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heisd_ros.closing import Closing
from heisd_ros.errors import ModelError
from heisd_ros.models.network import OpenVlaNetwork

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
LLM = "language_model."
FUSED = {
    "self_attn.qkv_proj.weight": ("q_proj", "k_proj", "v_proj"),
    "mlp.gate_up_proj.weight": ("gate_proj", "up_proj"),
}
MANY = 3
"""How many missing names an error message lists."""


def export_names(name: str) -> tuple[str, ...]:
    """Return the names in the export whose rows, stacked, make this parameter of the network.

    Example:
        >>> export_names("language_model.layers.0.mlp.gate_up_proj.weight")[1]
        'language_model.model.layers.0.mlp.up_proj.weight'
    """
    if not name.startswith(LLM):
        return (name,)
    rest = name.removeprefix(LLM)
    if rest.startswith("lm_head."):
        return (name,)
    for fused, parts in FUSED.items():
        if rest.endswith(fused):
            block = rest.removesuffix(fused) + fused.split(".", maxsplit=1)[0]
            return tuple(f"{LLM}model.{block}.{part}.weight" for part in parts)
    return (f"{LLM}model.{rest}",)


class WeightFiles(Closing):
    """The tensors of a checkpoint folder, single or sharded, read one at a time."""

    def __init__(self, folder: Path) -> None:
        """Open all files and check that they are whole.

        Raises:
            ModelError: If there are no safetensors, or one is missing or truncated.
        """
        self._folder = folder
        self._stack = ExitStack()
        self._handles: dict[str, Any] = {}
        for file in _files(folder):
            handle = self._open(file)
            self._handles.update(dict.fromkeys(handle.keys(), handle))

    def close(self) -> None:
        """Close all files."""
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._handles

    def read(self, name: str) -> Tensor:
        """Return one tensor as stored, on the CPU."""
        tensor: Tensor = self._handles[name].get_tensor(name)
        return tensor

    def _open(self, file: Path) -> Any:  # noqa: ANN401  (safetensors' handle is untyped)
        if not file.is_file():
            self._stack.close()
            raise ModelError(f"{file} is missing, but {INDEX_FILE} names it; copy it again")
        try:
            return self._stack.enter_context(safe_open(str(file), framework="pt", device="cpu"))
        except (SafetensorError, OSError) as error:
            self._stack.close()
            raise ModelError(
                f"{file} is truncated or damaged ({error}); copy or download it again"
            ) from error


def load_state(
    network: OpenVlaNetwork, folder: str | Path, *, device: torch.device, dtype: torch.dtype
) -> str:
    """Fill a network, which may have been built on the meta device, from a checkpoint folder.

    Unused tensors of the export (last blocks, pooling head) are not read.

    Returns:
        Short hash of the vision weights as stored.

    Raises:
        ModelError: If a file or tensor is missing, truncated or of another shape.
    """
    digest = hashlib.sha256()
    state: dict[str, Tensor] = {}
    tied = network.config.llm.tie
    with WeightFiles(Path(folder)) as files:
        wanted = {
            name: parameter.shape
            for name, parameter in network.state_dict().items()
            if not (tied and name == "language_model.lm_head.weight")
        }
        _check_names(wanted, files)
        _check_depths(network, files)
        for name, shape in wanted.items():
            tensor = _joined(name, shape, files)
            if name.startswith("vision_backbone."):
                digest.update(name.encode() + str(tensor.dtype).encode())
                digest.update(tensor.flatten().view(torch.uint8).numpy().data)
            # A copy, so that nothing points into the file once it is closed.
            state[name] = tensor.to(device=device, dtype=dtype, copy=True)
    if tied:
        state["language_model.lm_head.weight"] = state["language_model.embed_tokens.weight"]
    network.load_state_dict(state, strict=True, assign=True)
    if tied:
        network.language_model.lm_head.weight = network.language_model.embed_tokens.weight
    return digest.hexdigest()[:16]


def save_state(
    network: OpenVlaNetwork, folder: str | Path, *, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write `model.safetensors` in the export's names.

    The towers' last blocks and SigLIP's pooling head do not exist in the network, so they are not
    in the file either; nothing reads them.

    Returns:
        The file written.
    """
    tensors = {
        name: tensor.to("cpu", dtype).contiguous().clone()
        for name, tensor in exported(network.state_dict(), network)
    }
    file = Path(folder) / SINGLE_FILE
    save_file(tensors, str(file), metadata={"format": "pt"})
    file.chmod(0o644)  # the writer leaves it unreadable for others, also after installation
    return file


def exported(state: Mapping[str, Tensor], network: OpenVlaNetwork) -> Iterator[tuple[str, Tensor]]:
    """Yield (export name, tensor) for every parameter, fused matrices taken apart."""
    llm = network.config.llm
    sizes = {
        "self_attn.qkv_proj.weight": [n * llm.head_dim for n in (llm.heads, *[llm.kv_heads] * 2)],
        "mlp.gate_up_proj.weight": [llm.ffn, llm.ffn],
    }
    for name, tensor in state.items():
        if llm.tie and name == "language_model.lm_head.weight":
            continue
        names = export_names(name)
        if len(names) == 1:
            yield names[0], tensor
            continue
        rows = next(size for ending, size in sizes.items() if name.endswith(ending))
        yield from zip(names, torch.split(tensor.detach(), rows), strict=True)


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"{index} is damaged: {error!r}; copy it again") from error
        outside = [name for name in names if Path(str(name)).name != name]
        if outside:
            raise ModelError(
                f"{index} names files outside its folder: {', '.join(map(repr, outside))}; a "
                "checkpoint's shards lie beside its index"
            )
        return [folder / name for name in sorted(names)]
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    raise ModelError(
        f"no weights in {folder}: expected {SINGLE_FILE} or {INDEX_FILE} with its shards; "
        "only safetensors are read"
    )


def _check_names(wanted: Mapping[str, Any], files: WeightFiles) -> None:
    missing = [part for name in wanted for part in export_names(name) if part not in files]
    if missing:
        shown = ", ".join(missing[:MANY]) + (", ..." if len(missing) > MANY else "")
        raise ModelError(
            f"{len(missing)} tensors are missing from the checkpoint: {shown}; "
            "the folder is incomplete or config.json describes another model"
        )


def _check_depths(network: OpenVlaNetwork, files: WeightFiles) -> None:
    """Refuse a description that is too shallow: it would load, and answer nonsense."""
    config = network.config
    vision = "vision_backbone."
    beyond = {
        f"{vision}featurizer.blocks.{config.dino.depth}.norm1.weight": "DINOv2 blocks",
        f"{vision}fused_featurizer.blocks.{config.siglip.depth}.norm1.weight": "SigLIP blocks",
        f"{LLM}model.layers.{config.llm.layers}.input_layernorm.weight": "decoder layers",
    }
    for name, what in beyond.items():
        if name in files:
            raise ModelError(
                f"the checkpoint has more {what} than config.json says: {name} exists; "
                "take config.json and weights from the same source"
            )


def _joined(name: str, shape: torch.Size, files: WeightFiles) -> Tensor:
    parts = [files.read(part) for part in export_names(name)]
    try:
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
    except RuntimeError as error:
        raise ModelError(f"{name}: the parts do not fit together: {error}") from error
    if tensor.shape != shape:
        raise ModelError(
            f"{name} must have shape {tuple(shape)} by config.json, the file has "
            f"{tuple(tensor.shape)}; a checkpoint of unusual size needs timm_model_kwargs "
            "and text_config that say so"
        )
    return tensor
