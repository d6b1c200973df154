"""Features and policy must come from the same vision encoder."""

from __future__ import annotations

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
