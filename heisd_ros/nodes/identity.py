"""Features and policy come from the same vision encoder, and the model looks at the picture."""

from __future__ import annotations

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.errors import DataError


def fingerprint(model: object) -> str:
    """Return the fingerprint of an encoder or target model; empty if it does not tell."""
    return str(getattr(getattr(model, "info", None), "fingerprint", ""))


def policy_fingerprint(policy: object) -> str:
    """Return the fingerprint of the encoder a policy was made for; empty if it does not tell."""
    return fingerprint(getattr(getattr(policy, "decoder", None), "target", None))


def check_encoder(received: str, expected: str) -> None:
    """Refuse features of another encoder; an empty fingerprint is not compared.

    Raises:
        DataError: If both are known and differ.
    """
    if received and expected and received != expected:
        raise DataError(
            f"features come from encoder {received}, the policy needs {expected}; give both nodes "
            "the same model.checkpoint"
        )


def without_self_check(config: HeisdConfig) -> HeisdConfig:
    """Return the configuration for loading now what `check_policy` will check later."""
    return replace(config, model__self_check=False)


def check_policy(policy: object) -> None:
    """Let the target of a policy check itself; a policy without one passes.

    Raises:
        ModelError: If the model ignores the picture.
    """
    target = getattr(getattr(policy, "decoder", None), "target", None)
    check = getattr(target, "self_check", None)
    if check is not None:
        check()
