"""Fallbacks when an accelerator or a number type is missing (F05)."""

import logging

import pytest
import torch

from heisd_ros.errors import ConfigError
from heisd_ros.models.device import choose_device, choose_dtype

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


def test_without_cuda_the_cpu_is_used_and_said_once(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level(logging.INFO):
        assert choose_device("auto") == CPU
    assert lines(caplog) == ["no CUDA device found: computing on the CPU"]


def test_a_card_that_was_asked_for_but_is_missing_is_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0") == torch.device("cuda:0")
    assert choose_device("cuda:1") == CPU
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_bfloat16_falls_back_to_float16_on_an_old_card(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with caplog.at_level(logging.INFO):
        assert choose_dtype("auto", GPU) is torch.float16
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("auto", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float32)],
)
def test_types_on_the_cpu(name, expected):
    assert choose_dtype(name, CPU) is expected


def test_a_new_card_computes_in_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert choose_dtype("auto", GPU) is torch.bfloat16
    assert choose_dtype("float16", GPU) is torch.float16


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="toaster"):
        choose_device("toaster")
    with pytest.raises(ConfigError, match="int3"):
        choose_dtype("int3", CPU)
