"""`heisd report`: one page about one or more recorded runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from heisd_ros.offline.bag import run_records_from_bag
from heisd_ros.offline.report_page import write_report
from heisd_ros.offline.run_record import RunRecord, is_record, load_record


def main(argv: list[str]) -> int:
    """Run the verb.

    Raises:
        HeisdError: If a run cannot be read or shown.
    """
    parser = argparse.ArgumentParser(prog="heisd report", description=__doc__)
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN_DIR",
        help="folder of a recorded run (run.json) or of a recorded bag; the first one leads",
    )
    parser.add_argument("--out", type=Path, help="page to write [first RUN_DIR/report.html]")
    options = parser.parse_args(argv)
    out = options.out or options.runs[0] / "report.html"
    path = write_report([run for folder in options.runs for run in read_runs(folder)], out)
    sys.stdout.write(f"{path}\n")
    return 0


def read_runs(folder: Path) -> tuple[RunRecord, ...]:
    """Return the record in a folder, or those of the episodes of a recorded bag.

    Raises:
        DataError: If the folder is neither.
    """
    return (load_record(folder),) if is_record(folder) else run_records_from_bag(folder)
