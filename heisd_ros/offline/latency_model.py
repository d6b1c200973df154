"""Step time of every decoding method from the latencies of one device.

A small model on a CPU says how many forwards a method saves, not how many milliseconds it saves
on the machine that will serve a 7B model. This module joins the two: counts measured in closed
loop, multiplied by a device profile. All times are milliseconds, end to end: image in, action out.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.decode.methods import DRAFTER, KERV, RETRIEVAL, Method
from heisd_ros.errors import ConfigError
from heisd_ros.types import ACTION_DIM, DecodeReport, DraftKind

FREE_TOKENS = 1
"""The prefill itself answers the first token."""

SEQUENCE_TOKENS = 3
"""Tokens of the position and of the rotation sequence."""

QUERIED_IN_VAIN = ("unknown_task", "below_min_score")
"""Reasons of an autoregressive step that had asked the store before."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Latencies of one device and one checkpoint.

    Attributes:
        name: What was measured.
        source: Where the figures come from, in one sentence.
        overhead: o, everything outside the model: transfer, pre- and post-processing, ms.
        vision: v, vision encoder on the one view that the model is fed, ms.
        vision_two_views: v2, both views in one batch, ms.
        prefill: p, prompt and patches through the language model, ms.
        decode: c, one more token, ms.
        tree: g, forward over a draft tree on a kept K/V cache, ms.
        retrieval: q, one query of the demonstration store, ms.
        drafting: r, the drafter's share of one draft-verify iteration, ms; 0 without a drafter.
        prefix_length: L, tokens of prompt and patches.
        prefill_by_nodes: Measured (N, p(N) in ms) of prefills with N draft nodes, N ascending; may
            be left out of a file.
    """

    name: str
    source: str
    overhead: float
    vision: float
    vision_two_views: float
    prefill: float
    decode: float
    tree: float
    retrieval: float
    drafting: float
    prefix_length: int
    prefill_by_nodes: tuple[tuple[int, float], ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> DeviceProfile:
        """Read the `latency` object of a profile file; other objects of it are details.

        Raises:
            ConfigError: If the file is missing, is not JSON or lacks a figure.
        """
        file = Path(path)
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"device profile {file} cannot be read: {error}; write one with `heisd profile`"
            ) from error
        values = content.get("latency", {})
        names = {item.name for item in fields(cls) if item.default is MISSING}
        if set(values) - {"prefill_by_nodes"} != names:
            raise ConfigError(
                f"{file}: `latency` needs exactly {', '.join(sorted(names))}; got "
                f"{', '.join(sorted(values)) or 'nothing'}"
            )
        measured = tuple((int(n), float(ms)) for n, ms in values.pop("prefill_by_nodes", ()))
        return cls(**values, prefill_by_nodes=measured)

    def prefill_with(self, nodes: int) -> float:
        """Return p(N), the prefill that also verifies N draft nodes, ms.

        Between measured points a straight line; without them p (1 + N/L).
        """
        if self.prefill_by_nodes:
            counts, times = zip(*self.prefill_by_nodes, strict=True)
            return float(np.interp(nodes, counts, times))
        return self.prefill * (1.0 + nodes / self.prefix_length)


def autoregressive(profile: DeviceProfile) -> float:
    """Return o + v + p + 6c."""
    rest = (ACTION_DIM - FREE_TOKENS) * profile.decode
    return profile.overhead + profile.vision + profile.prefill + rest


def retrieval_only(profile: DeviceProfile) -> float:
    """Return o + v2 + q: the language model does not run."""
    return profile.overhead + profile.vision_two_views + profile.retrieval


def retrieval_chain(profile: DeviceProfile, accept_length: float) -> float:
    """Return o + v + q + p + (6/A) g: pure R-SD, verified again until the action is complete.

    Args:
        profile: The device.
        accept_length: A, tokens gained per verification.
    """
    iterations = (ACTION_DIM - FREE_TOKENS) / accept_length
    start = profile.overhead + profile.vision + profile.retrieval + profile.prefill
    return start + iterations * profile.tree


def drafter_tree(profile: DeviceProfile, accept_length: float) -> float:
    """Return o + v + p + (6/A)(r + g): pure D-SD and Spec-VLA."""
    iterations = (ACTION_DIM - FREE_TOKENS) / accept_length
    start = profile.overhead + profile.vision + profile.prefill
    return start + iterations * (profile.drafting + profile.tree)


def expected_forwards(position_accepted: float, rotation_accepted: float) -> float:
    """Return E[f], forwards after the first when sequences are accepted as wholes.

    Args:
        position_accepted: p1, probability that the position sequence is accepted.
        rotation_accepted: p2, the same of the rotation sequence, given p1's.
    """
    nothing = (1.0 - position_accepted) * 2 * SEQUENCE_TOKENS
    return nothing + position_accepted * (1.0 - rotation_accepted) * SEQUENCE_TOKENS


def draft_in_prefill(profile: DeviceProfile, nodes: int, more_forwards: float) -> float:
    """Return o + v2 + q + p(N) + f c: prompt and draft tree share one forward.

    Args:
        profile: The device.
        nodes: N, nodes of the draft tree.
        more_forwards: f, forwards after the first.
    """
    start = retrieval_only(profile) + profile.prefill_with(nodes)
    return start + more_forwards * profile.decode


def tree_after_prefill(profile: DeviceProfile, more_forwards: float) -> float:
    """Return o + v2 + q + p + g + f c: the tree has its own forward, accepted rows are kept."""
    start = retrieval_only(profile) + profile.prefill + profile.tree
    return start + more_forwards * profile.decode


def released_block(
    profile: DeviceProfile, position_accepted: float, rotation_accepted: float
) -> float:
    """Return o + v2 + q + p + g + (1 - p1 p2) 6c: accepted tokens are fed again one by one."""
    return tree_after_prefill(
        profile, (1.0 - position_accepted * rotation_accepted) * 2 * SEQUENCE_TOKENS
    )


def hybrid_mix(
    retrieval_share: float, skip_share: float, *, skipped: float, verified: float, drafter: float
) -> float:
    """Return x (s T_skip + (1 - s) T_ver) + (1 - x) T_drafter.

    Args:
        retrieval_share: x, share of steps above the boundary, [0, 1].
        skip_share: s, share of those that are executed unverified, [0, 1].
        skipped: T_skip, ms. End to end it contains vision and overhead; the paper's accounting
            charges the query alone.
        verified: T_ver, ms.
        drafter: T_drafter, ms.
    """
    above = skip_share * skipped + (1.0 - skip_share) * verified
    return retrieval_share * above + (1.0 - retrieval_share) * drafter


def project_step(report: DecodeReport, profile: DeviceProfile, method: Method) -> float:
    """Return what one recorded step would have taken on a device, ms.

    Both views are charged in every step of a method that retrieves: the mode is not known before
    the picture is. A forward behind the prefill costs what the method runs there: one token (c), a
    chain of guesses (g), or a tree with the drafting before it (r + g).

    Args:
        report: The recorded step.
        profile: The device.
        method: What decoded it.
    """
    time_ms = profile.overhead
    time_ms += profile.vision_two_views if method.needs_store else profile.vision
    if _queried(report, method):
        time_ms += profile.retrieval
    if report.forwards:
        time_ms += profile.prefill_with(report.prefill_nodes)
        time_ms += (report.forwards - 1) * _later_forward(report, profile, method)
    return time_ms


def _queried(report: DecodeReport, method: Method) -> bool:
    if report.reason in QUERIED_IN_VAIN:
        return True
    # A tree that the motion leads stands where retrieval had nothing to say.
    led_by_motion = report.kind is DraftKind.KINEMATIC and method.needs_store
    return led_by_motion or RETRIEVAL in method.drafts.get(report.kind, ())


def _later_forward(report: DecodeReport, profile: DeviceProfile, method: Method) -> float:
    finish = method.finish.get(report.kind, "")
    if finish in (DRAFTER, KERV):
        return profile.drafting + profile.tree
    return profile.tree if finish or report.kind is DraftKind.KINEMATIC else profile.decode
