"""The named methods: each is a configuration of one loop, never a branch in it.

| name             | drafts                              | acceptance      | skip  | finished by |
|------------------|-------------------------------------|-----------------|-------|-------------|
| `ar`             | none: 7 forwards                    | exact           | never | AR          |
| `jacobi`         | the action before                   | exact           | never | Jacobi      |
| `retrieval_only` | Top-1, executed as it is            | none            | all   | -           |
| `r_sd`           | Top-1 chain, every step             | exact           | never | AR          |
| `heisd`          | Top-K tree above the boundary       | from the config | never | AR          |
| `heisd_lossless` | Top-K tree, look-ahead and Kalman   | exact           | never | Jacobi      |
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from heisd_ros.errors import ConfigError
from heisd_ros.types import DraftKind

RETRIEVAL, LOOKAHEAD, KALMAN, HOLD = "retrieval", "lookahead", "kalman", "hold"
"""Names of the draft sources that need no features of the target."""


@dataclass(frozen=True, slots=True)
class Method:
    """What makes one method different from the others.

    Attributes:
        name: As on the command line and in every table.
        help: One sentence.
        fixed: The kind drafted in every step; None follows the boundary on F.
        drafts: Sources that share one tree; the first one leads.
        exact: Exact acceptance, whatever the configuration says.
        skip_all: Execute every draft without verification.
        jacobi: Finish actions by Jacobi iterations instead of one token per forward.
        top_k: Neighbours per query; None follows the configuration.
        recombine: Let sequences of different neighbours meet; None follows the configuration.
    """

    name: str
    help: str
    fixed: DraftKind | None = None
    drafts: tuple[str, ...] = ()
    exact: bool = False
    skip_all: bool = False
    jacobi: bool = False
    top_k: int | None = None
    recombine: bool | None = None

    @property
    def needs_store(self) -> bool:
        """Whether the method drafts from demonstrations."""
        return RETRIEVAL in self.drafts


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("ar", "Plain autoregressive decoding, 7 forwards.", fixed=DraftKind.AR, exact=True),
        Method(
            "jacobi",
            "The previous action as a guess, corrected in parallel until it stands.",
            fixed=DraftKind.KINEMATIC,
            drafts=(HOLD,),
            exact=True,
            jacobi=True,
        ),
        Method(
            "retrieval_only",
            "Execute the most similar demonstrated action; the model only sees.",
            fixed=DraftKind.RETRIEVAL,
            drafts=(RETRIEVAL,),
            skip_all=True,
            top_k=1,
        ),
        Method(
            "r_sd",
            "Retrieval drafts one chain, exact acceptance.",
            fixed=DraftKind.RETRIEVAL,
            drafts=(RETRIEVAL,),
            exact=True,
            top_k=1,
            recombine=False,
        ),
        Method(
            "heisd",
            "Hybrid boundary, Top-K sequence-wise tree, relaxed acceptance.",
            drafts=(RETRIEVAL,),
        ),
        Method(
            "heisd_lossless",
            "Every cheap draft in every step, exact acceptance: the tokens of AR.",
            fixed=DraftKind.RETRIEVAL,
            drafts=(RETRIEVAL, LOOKAHEAD, KALMAN),
            exact=True,
            jacobi=True,
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
