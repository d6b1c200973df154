"""Loading: what must work without network, and what must fail with a sentence."""

import builtins
import json
import shutil
import socket
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from heisd_ros.errors import ConfigError, DataError, ModelError
from heisd_ros.models import weights
from heisd_ros.models.checkpoint import Checkpoint, config_json, network_config
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tiny import make_tiny_checkpoint, tiny_statistics
from heisd_ros.models.weights import export_names

INDEX = "model.safetensors.index.json"
TEXT = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "vocab_size": 32064,
}
SMALL = {"embed_dim": 16, "depth": 3, "num_heads": 2}


@pytest.fixture
def folder(checkpoint, tmp_path):
    """A checkpoint that a test may damage."""
    return shutil.copytree(checkpoint, tmp_path / "checkpoint")


def load(folder):
    return OpenVlaTarget.from_pretrained(folder, "cpu")


def change(file, **values):
    content = json.loads(file.read_text())
    content.update(values)
    file.write_text(json.dumps(content))


def shard(folder):
    """Split the one file into two shards and an index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in shards.items() for name in part}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()


def test_loading_asks_nobody_and_opens_no_connection(folder, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("must not be called")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(builtins, "input", refuse)
    # As in a real export: names remote code that must not be needed.
    change(folder / "config.json", auto_map={"AutoConfig": "nowhere.Config"})
    assert load(folder).info.path == str(folder)


def test_a_hub_name_fails_at_once_with_what_to_do(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("network used"))
    begin = time.monotonic()
    with pytest.raises(ModelError, match=r"not a folder.*nothing is downloaded"):
        OpenVlaTarget.from_pretrained("openvla/openvla-7b")
    assert time.monotonic() - begin < 5.0


def test_a_file_instead_of_a_folder_is_refused(folder):
    with pytest.raises(ModelError, match="not a folder"):
        load(folder / "config.json")


@pytest.mark.parametrize(
    "name", ["config.json", "preprocessor_config.json", "tokenizer.json", "model.safetensors"]
)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_truncated_file_is_named(folder, name):
    file = folder / name
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ModelError, match=name):
        load(folder)


def test_shards_load_like_one_file(folder, target):
    shard(folder)
    state = load(folder).network.state_dict()
    for name, tensor in target.network.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_a_missing_or_truncated_shard_is_named(folder):
    shard(folder)
    whole = (folder / "b.safetensors").read_bytes()
    (folder / "b.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"b\.safetensors is truncated"):
        load(folder)
    (folder / "b.safetensors").unlink()
    with pytest.raises(ModelError, match=r"b\.safetensors is missing"):
        load(folder)


def test_a_missing_tensor_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["language_model.model.layers.1.self_attn.k_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"1 tensors are missing.*layers\.1\.self_attn\.k_proj"):
        load(folder)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"timm_model_kwargs": [SMALL, {**SMALL, "embed_dim": 24, "depth": 2}]}, "SigLIP blocks"),
        ({"text_config": {**TEXT, "num_hidden_layers": 1}}, "decoder layers"),
    ],
)
def test_a_description_that_is_too_shallow_is_refused(folder, values, what):
    change(folder / "config.json", **values)
    with pytest.raises(ModelError, match=f"more {what} than config"):
        load(folder)


def test_unused_tensors_of_the_export_are_ignored(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["vision_backbone.fused_featurizer.attn_pool.latent"] = torch.zeros(1, 1, 24)
    tensors["language_model.model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
    save_file(tensors, folder / "model.safetensors")
    load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vision_backbone_id": "siglip-vit-so400m"}, "other backbones are not supported"),
        ({"model_type": "llava"}, "expected model_type openvla"),
        ({"timm_model_ids": ["resnet50", "resnet50"]}, "timm_model_ids"),
        ({"timm_model_kwargs": None}, "tensors are missing"),
        (
            {"timm_model_kwargs": [SMALL, {**SMALL, "embed_dim": 24, "mlp_hidden": 96}]},
            "must have shape",
        ),
        (
            {"timm_model_kwargs": [{**SMALL, "num_heads": 3}, {}]},
            "heads that divide its 16 channels",
        ),
        ({"image_sizes": [56, 70]}, "both image_sizes must be equal"),
        ({"image_sizes": [70, 70]}, "pictures of 70 px.*of 56 px"),
        ({"use_proprio": True, "proprio_size": 0}, "needs proprio_size"),
        ({"text_config": {"vocab_size": 300}}, "a vocabulary larger than"),
        ({"text_config": {"hidden_size": 16, "num_attention_heads": 3}}, "must divide into 3"),
        ({"text_config": {"rope_scaling": {"type": "linear"}}}, "not supported"),
    ],
)
def test_a_wrong_description_is_refused(folder, values, message):
    change(folder / "config.json", **values)
    with pytest.raises(ModelError, match=message):
        load(folder)


def test_wrong_heads_of_the_language_model_are_refused(folder):
    content = json.loads((folder / "config.json").read_text())
    content["text_config"]["num_key_value_heads"] = 1
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"qkv_proj.*\(32, 16\).*\(48, 16\)"):
        load(folder)


def test_llama_defaults_fill_what_the_export_leaves_out():
    network = network_config(
        {
            "model_type": "openvla",
            "vision_backbone_id": "dinosiglip-vit-so-224px",
            "text_config": {"model_type": "llama", "vocab_size": 32064},
        }
    )
    llm = network.llm
    assert (llm.hidden, llm.layers, llm.heads, llm.kv_heads, llm.ffn) == (4096, 32, 32, 32, 11008)
    assert (llm.rms_eps, llm.rope_theta, llm.tie) == (1e-6, 10000.0, False)
    assert network.vocab_size == 32000
    assert (network.patches, network.patch_dim) == (256, 2176)
    assert (network.siglip.mlp_hidden, network.dino.mlp_hidden) == (4304, 4096)


def test_description_survives_writing_and_reading(checkpoint):
    network = Checkpoint.open(checkpoint).network
    assert network_config(config_json(network)) == network


def statistics(**changes):
    action = {"q01": [-0.05] * 7, "q99": [0.05] * 7, "mask": [True] * 6 + [False]}
    return {"action": {**action, **changes}}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "no action statistics|no entry"),
        ({"a": statistics(), "b": statistics(), "c": statistics()}, "a, b, c"),
        ({"a": statistics(q01=[-0.05] * 6)}, "same length"),
        ({"a": statistics(q01=[0.05] * 7)}, "axis 0"),
        ({"a": statistics(q99=[-1.0] * 7)}, "axis 0"),
        ({"a": statistics(q01=[float("nan")] * 7)}, "axis 0"),
    ],
)
def test_statistics_that_cannot_be_used_are_refused_at_loading(folder, table, message):
    (folder / "dataset_statistics.json").write_text(json.dumps(table))
    change(folder / "config.json", norm_stats=table)
    with pytest.raises((ConfigError, DataError), match=message):
        load(folder)


def test_an_unknown_statistics_key_lists_the_known_ones(folder):
    with pytest.raises(ConfigError, match=r"'libero'.*tiny"):
        OpenVlaTarget.from_pretrained(folder, "cpu", statistics_key="libero")


def test_dataset_statistics_win_over_those_in_the_config(folder):
    change(folder / "config.json", norm_stats={"tiny": statistics(q99=[9.0] * 7)})
    assert load(folder).statistics().q99[0] == 0.05


def test_state_statistics_must_fit_the_declared_state(tmp_path):
    table = {"tiny": tiny_statistics(4)}
    folder = make_tiny_checkpoint(tmp_path, state_size=3, statistics=table)
    with pytest.raises(ModelError, match=r"a state of 4 values, but proprio_size .* is 3"):
        load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image_resize_strategy": "letterbox"}, "resize-naive"),
        ({"interpolations": ["bicubic", "nearest"]}, "one filter"),
        ({"input_sizes": [[3, 56, 56], [3, 28, 28]]}, "one square size"),
        ({"means": [[0.5, 0.5, 0.5]]}, "two towers"),
    ],
)
def test_another_preprocessing_is_refused(folder, values, message):
    change(folder / "preprocessor_config.json", **values)
    with pytest.raises(ModelError, match=message):
        load(folder)


def test_a_foreign_tokenizer_is_refused(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    vocab["▁"], vocab["<unused>"] = 290, 29871
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="must have id 29871"):
        load(folder)


def test_fused_matrices_are_named_after_their_parts():
    assert export_names("language_model.layers.3.self_attn.qkv_proj.weight") == tuple(
        f"language_model.model.layers.3.self_attn.{part}_proj.weight" for part in "qkv"
    )
    assert export_names("language_model.norm.weight") == ("language_model.model.norm.weight",)
    assert export_names("projector.fc1.bias") == ("projector.fc1.bias",)


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "sub/a.safetensors"])
def test_an_index_that_names_files_outside_its_folder_is_refused(folder, name):
    shard(folder)
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"][sorted(index["weight_map"])[0]] = name
    (folder / INDEX).write_text(json.dumps(index))
    (folder.parent / "a.safetensors").write_bytes((folder / "a.safetensors").read_bytes())
    with pytest.raises(ModelError, match="outside its folder"):
        weights.WeightFiles(folder)
