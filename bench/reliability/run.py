"""What real node processes do when something breaks, measured by another process over DDS.

    python bench/reliability/run.py [--only cameras,signals] [--short | --medium]
                                    [--demos FOLDER] [--out runs/reliability]
                                    [--page docs/reliability.md]

`--short` repeats a few times, `--medium` as the geometric mean of that and the full number;
the full number takes hours. Results are kept in `<out>/results.json`; a later run replaces the rows
it measures. `--page` writes all of them between the markers of a page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shlex
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

from bench.reliability import (  # noqa: E402
    actions,
    bring_up,
    broken_bags,
    busy,
    cameras,
    clocks,
    conversion,
    decider,
    endurance,
    inputs,
    kills,
    lossless,
    parameters,
    recorded,
    servo,
    shutdown,
    start,
    store,
)
from bench.reliability.outcome import CannotRunError, Outcome, Row, Settings  # noqa: E402
from bench.reliability.table import BLOCK, markdown  # noqa: E402
from heisd_ros.offline.benchmark_table import fill_block  # noqa: E402
from heisd_ros.offline.provenance import commit  # noqa: E402
from heisd_ros.offline.run_facts import machine  # noqa: E402

GROUPS = (
    cameras,
    decider,
    kills,
    lossless,
    shutdown,
    actions,
    inputs,
    bring_up,
    broken_bags,
    busy,
    parameters,
    recorded,
    clocks,
    servo,
    start,
    store,
    conversion,
    endurance,
)
ROWS: tuple[Row, ...] = tuple(row for group in GROUPS for row in group.ROWS)
RESULTS = "results.json"


class Lateness:
    """How late this machine wakes a thread: no consumer here can see better than that."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Lateness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            due = time.monotonic() + 0.01
            if self._stop.wait(0.01):
                return
            self.worst_s = max(self.worst_s, time.monotonic() - due)


def measure(row: Row, settings: Settings) -> dict[str, Any]:
    """Run one experiment; a crash of it is a result too."""
    began = time.monotonic()
    with Lateness() as lateness:
        outcome, status = _attempt(row, settings)
    arguments = [
        "--only",
        row.key,
        *([] if settings.length == "full" else [f"--{settings.length}"]),
        *(["--demos", "FOLDER"] if settings.demos and row.key == "lossless" else []),
    ]
    figures = [
        {
            "name": figure.name,
            "value": figure.value if math.isfinite(figure.value) else None,
            "unit": figure.unit,
            "low": figure.low,
            "high": figure.high,
            "reached": figure.reached,
        }
        for figure in outcome.figures
    ]
    return {
        "key": row.key,
        "title": row.title,
        "target": row.target,
        "status": status,
        "runs": outcome.runs,
        "length": settings.length,
        "figures": figures,
        "note": outcome.note,
        "command": shlex.join(["python", "bench/reliability/run.py", *arguments]),
        "seconds": round(time.monotonic() - began, 1),
        "load": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
        "jitter_ms": 1e3 * lateness.worst_s,
        "machine": machine(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _attempt(row: Row, settings: Settings) -> tuple[Outcome, str]:
    try:
        outcome = row.measure(settings)
    except CannotRunError as error:
        return Outcome("", note=str(error)), "cannot run here"
    except Exception as error:
        traceback.print_exc()
        return Outcome("", note=f"The experiment itself failed: {error}."), "not measured"
    return outcome, "yes" if outcome.reached else "**no**"


def keep(path: Path, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Put a row among those of earlier runs, in the order of the table."""
    earlier = json.loads(path.read_text()) if path.exists() else []
    rows = {row["key"]: row for row in earlier if "length" in row}  # others are of another schema
    rows[found["key"]] = found
    ordered = [rows[row.key] for row in ROWS if row.key in rows]
    path.write_text(json.dumps(ordered, indent=1) + "\n")
    return ordered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="keys, separated by commas")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--short", action="store_const", const="short", dest="length")
    length.add_argument("--medium", action="store_const", const="medium", dest="length")
    parser.set_defaults(length="full")
    parser.add_argument("--out", type=Path, default=Path("runs/reliability"))
    parser.add_argument("--demos", type=Path, help="demonstrated episodes that `lossless` reads")
    parser.add_argument("--page", type=Path, help="Markdown page whose table is written")
    parser.add_argument("--list", action="store_true", help="print the keys and end")
    options = parser.parse_args()
    if options.list:
        for row in ROWS:
            print(f"{row.key:16} {row.title}: {row.target}")
        return 0
    wanted = [key for key in options.only.split(",") if key] or [row.key for row in ROWS]
    unknown = set(wanted) - {row.key for row in ROWS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; see --list")
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for row in (row for row in ROWS if row.key in wanted):
        found = measure(row, Settings(options.length, options.out / row.key, options.demos))
        rows = keep(options.out / RESULTS, found)
        print(f"{row.key}: {found['status']} ({found['seconds']} s)", flush=True)
        for figure in found["figures"]:
            print(f"    {figure['name']}: {figure['value']} {figure['unit']}", flush=True)
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        options.page.write_text(fill_block(text, BLOCK, markdown(rows)), encoding="utf-8")
    measured = [row for row in rows if row["key"] in wanted]
    return 0 if all(row["status"] in ("yes", "cannot run here") for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
