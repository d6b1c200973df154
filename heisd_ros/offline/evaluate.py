"""`heisd evaluate`: methods side by side in closed loop, from the same initial states."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.decode.methods import METHODS
from heisd_ros.offline.benchmark_plots import write_plots
from heisd_ros.offline.benchmark_table import markdown
from heisd_ros.offline.command_line import name_and_value, numbers, read_config
from heisd_ros.offline.evaluation import run_evaluation
from heisd_ros.offline.evaluation_plan import Plan
from heisd_ros.offline.latency_model import DeviceProfile
from heisd_ros.offline.provenance import provenance
from heisd_ros.offline.results import RESULTS_FILE, write_results
from heisd_ros.offline.run_summary import OVERHEAD_MS, summarise_run
from heisd_ros.share import config_file

ALL = ",".join(METHODS)
PROFILE = "profiles/a100_paper.json"

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then write results.json, results.md and the plots."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if not options.summary_only:
        run_evaluation(make_plan(options), provenance("evaluate", arguments))
    profile = DeviceProfile.load(options.profile or config_file(PROFILE))
    results = summarise_run(options.out, profile, overhead_ms=options.overhead)
    write_results(results, options.out / RESULTS_FILE)
    page = options.out / "results.md"
    page.write_text(markdown(results), encoding="utf-8")
    write_plots(results, options.out)
    sys.stdout.write(page.read_text(encoding="utf-8"))
    return 0


def make_plan(options: argparse.Namespace) -> Plan:
    """Return what the command line asks for.

    Raises:
        ConfigError: If the configuration or a setting is wrong.
    """
    return Plan(
        suite=options.suite,
        tasks=options.tasks,
        inits=options.inits,
        methods=tuple(name.strip() for name in options.methods.split(",") if name.strip()),
        out=options.out,
        config=read_config(options.config, options.set, store=options.store),
        stores=dict(name_and_value(text, "--store-as") for text in options.store_as),
        demos=options.demos,
        max_steps=options.max_steps,
        shadow=options.shadow_ar,
        processes=options.processes,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heisd evaluate", description=__doc__)
    add = parser.add_argument
    add("--suite", default="libero_spatial", help="LIBERO suite (default %(default)s)")
    add("--tasks", type=numbers, default=(0,), help="task numbers, e.g. 0,1,2 or 0-9")
    add("--inits", type=numbers, default=(0,), help="official initial states, e.g. 0-19")
    add(
        "--methods",
        default=ALL,
        help="methods, `name@label` for another store, `replay` for the open-loop baseline "
        "(default: all)",
    )
    add("--out", type=Path, required=True, help="folder of the run; episodes in it are kept")
    add("--config", type=Path, action="append", default=[], help="YAML file; may be repeated")
    add("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    add("--store", help="demonstration store of methods without @label: a folder or a server")
    add("--store-as", action="append", default=[], metavar="LABEL=STORE", help="another store")
    add("--demos", type=Path, help="demonstrations, for `replay`")
    add("--processes", type=int, default=1, help="episodes at a time, 2 GB each")
    add("--max-steps", type=int, default=0, help="longest episode (default: the suite's)")
    add("--shadow-ar", action="store_true", help="also measure the deviation from AR, step by step")
    add("--profile", type=Path, help="device profile of the projection (default: the paper's A100)")
    add(
        "--overhead",
        type=float,
        default=OVERHEAD_MS,
        help="overhead of a second projection, ours [ms] (default %(default)s)",
    )
    add("--summary-only", action="store_true", help="run nothing, write the tables of --out again")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
