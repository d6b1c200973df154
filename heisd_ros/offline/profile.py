"""`heisd profile`: measure this machine, so that recorded runs can be projected onto it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from heisd_ros.build import (
    Components,
    build_components,
    build_policy,
    build_random_draft_head,
    build_shape,
    hardware,
)
from heisd_ros.config import HeisdConfig, replace
from heisd_ros.decode.policy import HeisdPolicy
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.errors import ConfigError
from heisd_ros.offline.command_line import read_config
from heisd_ros.offline.device_profile import (
    Timing,
    Workbench,
    measure,
    measure_drafting,
    measure_parts,
    measure_retrieval,
    to_profile,
)
from heisd_ros.offline.latency_model import autoregressive
from heisd_ros.offline.provenance import provenance

STAGES = ("vision", "draft", "prefill", "decode")
CLOCKS = ("wall time", "processor time of one process")
SYNTHETIC = SyntheticSpec(tasks=1, episodes=100, steps=70)
"""Stands in for a demonstration store: 7000 rows, as one task of the paper has."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the profile."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    config = read_config(options.config, options.set)
    if options.checkpoint:
        config = replace(config, model__checkpoint=str(options.checkpoint))
    if options.shape and options.checkpoint:
        raise ConfigError("give --checkpoint or --shape, not both")
    with tempfile.TemporaryDirectory() as folder:
        config = replace(config, decode__method="ar")
        if options.shape:
            components = build_shape(config, options.shape, options.layers, Path(folder))
        else:
            components = build_components(config)
        content = profile_of(
            config,
            components,
            options.store,
            name=options.name,
            repeats=options.repeats,
            cpu_time=options.cpu_time,
        )
    if options.shape:
        content["shape"] = {"name": options.shape, "layers": options.layers or "all"}
    content["provenance"] = provenance("profile", arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(content["latency"], indent=2) + "\n")
    return 0


def profile_of(
    config: HeisdConfig,
    components: Components,
    store: Path | None,
    *,
    name: str,
    repeats: int,
    cpu_time: bool = False,
) -> dict[str, object]:
    """Return the content of a profile file, without its provenance.

    Args:
        config: Of the autoregressive policy that is timed as a whole.
        components: The model to be timed.
        store: Demonstration store; None measures a synthetic one of 7000 rows.
        name: Name of the profile.
        repeats: Measurements of every part.
        cpu_time: Count the process's own computing instead of the wall's time.

    Raises:
        HeisdError: If the store cannot be loaded.
    """
    clock = time.process_time if cpu_time else time.perf_counter
    bench = Workbench(
        components.target,
        components.encoder,
        image_size=config.simulation.image_size,
        clock=clock,
    )
    parts = measure_parts(bench, repeats=repeats)
    parts |= measure_drafting(bench, build_random_draft_head(components), repeats=repeats)
    parts["retrieval"] = _retrieval(bench, store, config.retrieval.top_k, repeats)
    policy = build_policy(config, components, clock=clock)
    parts["step_ar"] = measure(lambda: policy.act(bench.observation), repeats=repeats, clock=clock)
    parts["overhead"] = _overhead(policy, bench, repeats)
    profile = to_profile(
        parts,
        name=name or Path(components.target.info.path).name,
        source=f"measured by `heisd profile` in {CLOCKS[cpu_time]}; overhead is this process "
        "alone, without transport; the draft head has random weights",
        prefix_length=bench.prefix_length,
    )
    return {
        "latency": asdict(profile),
        "measured": {key: asdict(timing) for key, timing in parts.items()},
        "hardware": hardware(components),
        "load_average": os.getloadavg()[0],
        "check": {
            "ar_step_ms": parts["step_ar"].p50_ms,
            "ar_by_the_model_ms": autoregressive(profile),
        },
    }


def _retrieval(bench: Workbench, store: Path | None, k: int, repeats: int) -> Timing:
    if store is not None:
        with MemoryStore.open(store) as opened:
            return measure_retrieval(bench, opened, opened.tasks[0], k=k, repeats=repeats)
    size = len(bench.features.embedding)
    with tempfile.TemporaryDirectory() as folder:
        spec = SyntheticSpec(SYNTHETIC.tasks, SYNTHETIC.episodes, SYNTHETIC.steps, size)
        with synthetic_store(Path(folder) / "store", spec) as made:
            return measure_retrieval(bench, made, made.tasks[0], k=k, repeats=repeats)


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
    add("--shape", choices=("7b", "tiny"), help="random weights of this shape, made on the spot")
    add("--layers", type=int, default=0, help="decoder layers of --shape (default: all of them)")
    add("--store", type=Path, help="demonstration store (default: a synthetic one, 7000 rows)")
    add("--name", default="", help="name of the profile (default: the checkpoint's)")
    add(
        "--cpu-time",
        action="store_true",
        help="count this process's computing, not the wall's time: for one thread on a busy CPU",
    )
    add("--repeats", type=int, default=50, help="measurements of every part")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
