"""The named methods: each is a configuration of one loop, never a branch in it.

| name             | drafts in the prefill           | finished by      | acceptance    | skip   |
|------------------|---------------------------------|------------------|---------------|--------|
| `ar`             | none: 7 forwards                | AR               | exact         | never  |
| `jacobi`         | the action before               | Jacobi           | exact         | never  |
| `retrieval_only` | Top-1, executed as it is        | -                | none          | all    |
| `r_sd`           | Top-1 chain                     | AR               | exact         | never  |
| `d_sd`           | none                            | drafter          | exact         | never  |
| `spec_vla`       | none                            | drafter          | 9 bins        | never  |
| `kerv`           | none                            | drafter, filter  | 5 to 15 bins  | never  |
| `heisd_paper`    | Top-K chains / none             | AR / drafter     | 45, 25 / 9    | 2 of 3 |
| `heisd`          | Top-K tree, 3 cheap chains      | tree / drafter   | configuration | same   |
| `heisd_lossless` | the same                        | tree             | exact         | never  |

The cheap chains are look-ahead, Kalman and the action before; the tree is Jacobi's, of several
branches. `/` parts steps above and below the boundary.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heisd_ros.config import HeisdConfig, make_config, to_flat
from heisd_ros.errors import ConfigError
from heisd_ros.types import DraftKind

RETRIEVAL, LOOKAHEAD, KALMAN, HOLD = "retrieval", "lookahead", "kalman", "hold"
"""Names of the draft sources that need no features of the target."""

JACOBI, JACOBI_TREE, DRAFTER, KERV = "jacobi", "jacobi_tree", "drafter", "kerv"
"""Names of what finishes an action; without one, one token per forward does."""

CHEAP = (RETRIEVAL, LOOKAHEAD, KALMAN, HOLD)

EXACT: Mapping[str, Any] = {"verify.rule": "exact", "verify.drafter_rule": "exact"}
UNSKIPPED: Mapping[str, Any] = {"skip.rule": "never"}
TOP_1: Mapping[str, Any] = {"retrieval.top_k": 1, "draft.recombine": False}

PUBLISHED: Mapping[str, Any] = {
    "trajectory.window": 5,
    "trajectory.alpha": 0.5,
    "trajectory.radius": "centroid",
    "trajectory.displacement": "last_to_all",
    "trajectory.radius_low": 0.0,
    "trajectory.radius_high": 0.015654,
    "trajectory.displacement_low": 0.0,
    "trajectory.displacement_high": 0.128629,
    "trajectory.threshold": 0.217119,
    "trajectory.hysteresis": 1.0,
    "trajectory.dwell": 0,
    "retrieval.top_k": 5,
    "draft.recombine": False,
    "verify.rule": "sequence_relaxed",
    "verify.sequence_budget": 45,
    "verify.token_budget": 25,
    "verify.strict": True,
    "verify.drafter_rule": "token_relaxed",
    "verify.drafter_tolerance": 9,
    "verify.tighten": False,
    "skip.rule": "schedule",
    "skip.max_consecutive": 2,
}
"""What the published code of HeiSD runs with; ranges and threshold are those of LIBERO-Spatial."""


@dataclass(frozen=True, slots=True)
class Method:
    """What makes one method different from the others.

    Attributes:
        name: As on the command line and in every table.
        help: One sentence.
        fixed: The kind drafted in every step; None follows the boundary on F.
        drafts: Kind -> sources that share one tree in the prefill; the first one leads.
        finish: Kind -> what finishes an action that the prefill left open.
        settings: `section.field` -> value that the method has whatever the configuration says.
    """

    name: str
    help: str
    fixed: DraftKind | None = None
    drafts: Mapping[DraftKind, tuple[str, ...]] = field(default_factory=dict)
    finish: Mapping[DraftKind, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_store(self) -> bool:
        """Whether the method drafts from demonstrations."""
        return any(RETRIEVAL in names for names in self.drafts.values())

    @property
    def uses_drafter(self) -> bool:
        """Whether a learned drafter finishes some of its steps."""
        return any(name in (DRAFTER, KERV) for name in self.finish.values())

    @property
    def needs_drafter(self) -> bool:
        """Whether it has no other draft for those steps."""
        return self.uses_drafter and not self.drafts.get(DraftKind.DRAFTER)

    @property
    def exact(self) -> bool:
        """Whether it decodes the tokens of autoregression."""
        return {**EXACT, **UNSKIPPED}.items() <= dict(self.settings).items()


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "ar",
            "Plain autoregressive decoding, 7 forwards.",
            fixed=DraftKind.AR,
            settings={**EXACT, **UNSKIPPED},
        ),
        Method(
            "jacobi",
            "The previous action as a guess, corrected in parallel until it stands.",
            fixed=DraftKind.KINEMATIC,
            drafts={DraftKind.KINEMATIC: (HOLD,)},
            finish={DraftKind.KINEMATIC: JACOBI},
            settings={**EXACT, **UNSKIPPED},
        ),
        Method(
            "retrieval_only",
            "Execute the most similar demonstrated action; the model only sees.",
            fixed=DraftKind.RETRIEVAL,
            drafts={DraftKind.RETRIEVAL: (RETRIEVAL,)},
            settings={**TOP_1, "skip.rule": "always"},
        ),
        Method(
            "r_sd",
            "Retrieval drafts one chain, exact acceptance.",
            fixed=DraftKind.RETRIEVAL,
            drafts={DraftKind.RETRIEVAL: (RETRIEVAL,)},
            settings={**TOP_1, **EXACT, **UNSKIPPED},
        ),
        Method(
            "d_sd",
            "The drafter's EAGLE-2 tree behind the prefill, exact acceptance.",
            fixed=DraftKind.DRAFTER,
            finish={DraftKind.DRAFTER: DRAFTER},
            settings={**EXACT, **UNSKIPPED},
        ),
        Method(
            "spec_vla",
            "The drafter's tree, every token within 9 bins (Spec-VLA).",
            fixed=DraftKind.DRAFTER,
            finish={DraftKind.DRAFTER: DRAFTER},
            settings={
                **UNSKIPPED,
                "verify.drafter_rule": "token_relaxed",
                "verify.drafter_tolerance": 9,
                "verify.tighten": False,
            },
        ),
        Method(
            "kerv",
            "The drafter's tree, tolerance by kinematic variability, filter after a rejection.",
            fixed=DraftKind.DRAFTER,
            finish={DraftKind.DRAFTER: KERV},
            settings={**UNSKIPPED, "verify.drafter_rule": "kinematic", "verify.tighten": False},
        ),
        Method(
            "heisd_paper",
            "HeiSD as its published code runs: candidates apart, 45/25, skips two of three.",
            drafts={DraftKind.RETRIEVAL: (RETRIEVAL,)},
            finish={DraftKind.DRAFTER: DRAFTER},
            settings=PUBLISHED,
        ),
        Method(
            "heisd",
            "Hybrid boundary, every cheap draft in the prefill, relaxed acceptance.",
            drafts={DraftKind.RETRIEVAL: CHEAP, DraftKind.DRAFTER: CHEAP},
            finish={DraftKind.RETRIEVAL: JACOBI_TREE, DraftKind.DRAFTER: DRAFTER},
        ),
        Method(
            "heisd_lossless",
            "Every cheap draft in every step, exact acceptance: the tokens of AR.",
            fixed=DraftKind.RETRIEVAL,
            drafts={DraftKind.RETRIEVAL: CHEAP},
            finish={DraftKind.RETRIEVAL: JACOBI_TREE},
            settings={**EXACT, **UNSKIPPED},
        ),
    )
}


def method_named(name: str) -> Method:
    """Return a method, or raise ConfigError with the nearest known name."""
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown method {name!r}, expected one of {', '.join(METHODS)}{hint}")
    return METHODS[name]


def method_config(config: HeisdConfig) -> HeisdConfig:
    """Return the configuration with what `decode.method` settles."""
    return make_config({**to_flat(config), **method_named(config.decode.method).settings})
