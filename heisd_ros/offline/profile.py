"""`heisd profile`: measure this machine, so that recorded runs can be projected onto it."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from heisd_ros.build import build_components, build_policy
from heisd_ros.config import HeisdConfig, replace
from heisd_ros.decode.policy import HeisdPolicy
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.offline.command_line import read_config
from heisd_ros.offline.device_profile import (
    Timing,
    Workbench,
    measure,
    measure_parts,
    measure_retrieval,
    to_profile,
)
from heisd_ros.offline.latency_model import autoregressive
from heisd_ros.offline.provenance import provenance

STAGES = ("vision", "draft", "prefill", "decode")
SYNTHETIC = SyntheticSpec(tasks=1, episodes=100, steps=70)
"""Stands in for a demonstration store: 7000 rows, as one task of the paper has."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the profile."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    config = read_config(options.config, options.set)
    if options.checkpoint:
        config = replace(config, model__checkpoint=str(options.checkpoint))
    content = profile_of(config, options.store, name=options.name, repeats=options.repeats)
    content["provenance"] = provenance("profile", arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(content["latency"], indent=2) + "\n")
    return 0


def profile_of(
    config: HeisdConfig, store: Path | None, *, name: str, repeats: int
) -> dict[str, object]:
    """Return the content of a profile file, without its provenance.

    Args:
        config: Names checkpoint, device and threads.
        store: Demonstration store; None measures a synthetic one of 7000 rows.
        name: Name of the profile.
        repeats: Measurements of every part.

    Raises:
        HeisdError: If the checkpoint or the store cannot be loaded.
    """
    config = replace(config, decode__method="ar")
    components = build_components(config)
    info = components.target.info
    bench = Workbench(
        components.target, components.encoder, image_size=config.simulation.image_size
    )
    parts = measure_parts(bench, repeats=repeats)
    size = len(bench.features.embedding)
    parts["retrieval"] = _retrieval(store, size, config.retrieval.top_k, repeats)
    policy = build_policy(config, components)
    total = measure(lambda: policy.act(bench.observation), repeats=repeats)
    parts["step_ar"] = total
    parts["overhead"] = _overhead(policy, bench, repeats)
    profile = to_profile(
        parts,
        name=name or Path(info.path).name,
        source="measured by `heisd profile`; overhead is this process alone, without transport",
        prefix_length=bench.prefix_length,
    )
    return {
        "latency": asdict(profile),
        "measured": {key: asdict(timing) for key, timing in parts.items()},
        "check": {
            "ar_step_ms": total.p50_ms,
            "ar_by_the_model_ms": autoregressive(profile),
        },
    }


def _retrieval(store: Path | None, size: int, k: int, repeats: int) -> Timing:
    if store is not None:
        with MemoryStore.open(store) as opened:
            return measure_retrieval(opened, opened.tasks[0], size, k=k, repeats=repeats)
    with tempfile.TemporaryDirectory() as folder:
        spec = SyntheticSpec(SYNTHETIC.tasks, SYNTHETIC.episodes, SYNTHETIC.steps, size)
        with synthetic_store(Path(folder) / "store", spec) as made:
            return measure_retrieval(made, made.tasks[0], size, k=k, repeats=repeats)


def _overhead(policy: HeisdPolicy, bench: Workbench, repeats: int) -> Timing:
    """Time what a step takes beside its stages."""
    rests = []
    for _ in range(repeats):
        stages = policy.act(bench.observation).report.stage_ms
        rests.append(stages["total"] - sum(stages.get(stage, 0.0) for stage in STAGES))
    rests.sort()
    return Timing(repeats, rests[len(rests) // 2], rests[int(0.95 * (len(rests) - 1))])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heisd profile", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="JSON file to write")
    add("--checkpoint", type=Path, help="checkpoint folder (default: the small one we ship)")
    add("--config", type=Path, action="append", default=[], help="YAML file; may be repeated")
    add("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    add("--store", type=Path, help="demonstration store (default: a synthetic one, 7000 rows)")
    add("--name", default="", help="name of the profile (default: the checkpoint's)")
    add("--repeats", type=int, default=50, help="measurements of every part")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
