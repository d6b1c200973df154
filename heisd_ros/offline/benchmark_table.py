"""Markdown tables from the results of evaluations: `python -m heisd_ros.offline.benchmark_table`.

The page that is written keeps its prose: only what stands between the two marker lines of a block
is replaced.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.errors import DataError
from heisd_ros.offline.evaluation_plan import REPLAY
from heisd_ros.offline.results import ALL_TASKS, RESULTS_FILE, Results, Row, read_results

BEGIN = "<!-- results {name}: generated, do not edit -->"
END = "<!-- end of results {name} -->"
NONE = "-"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables into a page."""
    parser = argparse.ArgumentParser(
        prog="python -m heisd_ros.offline.benchmark_table", description=__doc__
    )
    parser.add_argument("results", type=Path, help=f"{RESULTS_FILE} of `heisd evaluate`")
    parser.add_argument("--page", type=Path, required=True, help="Markdown file with the markers")
    parser.add_argument("--block", required=True, help="name in the marker lines")
    options = parser.parse_args(argv)
    text = options.page.read_text(encoding="utf-8")
    tables = markdown(read_results(options.results))
    options.page.write_text(fill_block(text, options.block, tables), encoding="utf-8")
    return 0


def fill_block(page: str, name: str, content: str) -> str:
    """Return the page with the content between the two marker lines of a block.

    Raises:
        DataError: If the page does not have exactly one such block.
    """
    begin, end = BEGIN.format(name=name), END.format(name=name)
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise DataError(f"the page needs one line {begin!r} and below it one line {end!r}")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{content.strip()}\n{end}{rest.partition(end)[2]}"


def markdown(results: Results) -> str:
    """Return all tables of an evaluation, and where they come from."""
    parts = [
        overall_table(results),
        task_table(results),
        pair_table(results),
        deviation_table(results),
        origin(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def overall_table(results: Results) -> str:
    """Return one line per method over all tasks."""
    rows = [row for row in results.rows if row.task == ALL_TASKS]
    base = next((row for row in rows if row.method == "ar"), None)
    head = [
        "method",
        "success",
        "95 % interval",
        "crashes",
        "steps",
        "forwards / step",
        "accept length",
        "unverified steps / tokens",
        "drafts from",
        "p50 / p99 ms here",
    ]
    if results.profile:
        head += ["projected ms (speed-up)", f"at {results.overhead_ms:g} ms overhead"]
        head.append(f"s per solved task, {results.overhead_ms:g} ms overhead")
    lines = [_overall_cells(row) for row in rows]
    if results.profile:
        lines = [
            cells + _projected_cells(row, base) for cells, row in zip(lines, rows, strict=True)
        ]
    return _table(head, lines)


def task_table(results: Results) -> str:
    """Return successes per task and method."""
    tasks = sorted({row.task for row in results.rows if row.task != ALL_TASKS})
    methods = [row.method for row in results.rows if row.task == ALL_TASKS]
    cells = {(row.task, row.method): _count(row) for row in results.rows}
    lines = [
        [f"{task}: {results.instructions[task]}"]
        + [cells.get((task, method), NONE) for method in methods]
        for task in tasks
    ]
    return _table(["task", *map(_code, methods)], lines)


def pair_table(results: Results) -> str:
    """Return every method against AR from the same initial states, and episodes equal to AR's."""
    head = ["method", "pairs", "only AR solved", "only this solved", "McNemar p", "token for token"]
    same = {row.method: row.same_as_base for row in results.rows if row.task == ALL_TASKS}
    lines = [
        [
            _code(pair.method),
            str(pair.pairs),
            str(pair.only_base),
            str(pair.only_method),
            _probability(pair.p),
            NONE if same[pair.method] < 0 else f"{same[pair.method]}/{pair.pairs}",
        ]
        for pair in results.pairs
        if pair.pairs
    ]
    return _table(head, lines)


def deviation_table(results: Results) -> str:
    """Return how far every method's actions are from AR's on the same observations."""
    rows = [row for row in results.rows if row.task == ALL_TASKS]
    head = [
        "method",
        "steps",
        "equal actions",
        "L1 (bins)",
        "Linf (bins)",
        "Linf p95",
        "xyz / rotation (action units)",
        "gripper differs",
    ]
    lines = []
    for row in rows:
        found = row.deviation
        if found is None:
            continue
        lines.append(
            [
                _code(row.method),
                str(found.steps),
                _percent(found.equal_share, 2),
                _number(found.l1, 1),
                _number(found.linf, 1),
                _number(found.linf_p95, 0),
                f"{_number(found.translation, 3)} / {_number(found.rotation, 3)}",
                _percent(found.gripper_share, 2),
            ]
        )
    return _table(head, lines)


def origin(results: Results) -> str:
    """Return where the tables come from, one line per fact."""
    config = results.settings["config"]
    lines = [
        f"- Suite {results.settings['suite']}, at most {results.settings['max_steps']} steps after "
        "10 steps without motion, official initial states, "
        f"pictures of {config['simulation.image_size']} px.",
        f"- Boundary F > {config['trajectory.threshold']:.4g} "
        f"(w={config['trajectory.window']}, {config['trajectory.radius']}, "
        f"{config['trajectory.displacement']}); K={config['retrieval.top_k']}; "
        f"budgets {config['verify.sequence_budget']}/{config['verify.token_budget']} bins.",
    ]
    for name, folder in sorted(results.settings["stores"].items()):
        lines.append(f"- Store `{name}`: {folder}.")
    if results.profile:
        lines.append(f"- Projected by the profile: {results.profile}.")
    for place in dict.fromkeys((run["machine"], run["versions"]) for run in results.runs):
        lines.append(f"- {place[0]}; {place[1]}. Commands (commit, start):")
        lines += [
            f"  - `{run['command']}` ({run['commit']}, {run['date']})"
            for run in results.runs
            if (run["machine"], run["versions"]) == place
        ]
    return "\n".join(lines)


def _overall_cells(row: Row) -> list[str]:
    modes = [f"{kind} {_percent(share)}" for kind, share in row.mode_share.items() if share > 0]
    blind = row.method == REPLAY
    return [
        _code(row.method),
        f"{_count(row)} = {_percent(row.successes / row.episodes)}" if row.episodes else NONE,
        f"{100 * row.low:.0f}-{100 * row.high:.0f} %",
        str(row.crashes),
        _number(row.steps, 0),
        NONE if blind else _number(row.forwards, 2),
        _number(row.accept_length, 2),
        NONE if blind else f"{_percent(row.skip_share)} / {_percent(row.unverified_share)}",
        NONE if blind else ", ".join(modes),
        f"{_number(row.p50_ms, 1)} / {_number(row.p99_ms, 1)}",
    ]


def _projected_cells(row: Row, base: Row | None) -> list[str]:
    """Return a step in ms with the profile's overhead and with ours, and a solved task in s.

    Whoever acts on worse actions needs more steps: only the last figure counts both.
    """
    theirs = [math.nan] * 3 if base is None else _times(base)
    return [
        _number(time, digits) + ("" if math.isnan(other / time) else f" ({other / time:.2f}x)")
        for time, other, digits in zip(_times(row), theirs, (0, 0, 1), strict=True)
    ]


def _times(row: Row) -> list[float]:
    return [row.projected_ms, row.lean_ms, 1e-3 * row.lean_ms * row.success_steps]


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _count(row: Row) -> str:
    crashed = f" (+{row.crashes} crashed)" if row.crashes else ""
    return f"{row.successes}/{row.episodes}{crashed}"


def _code(text: str) -> str:
    return f"`{text}`"


def _percent(share: float, digits: int = 0) -> str:
    return NONE if math.isnan(share) else f"{100 * share:.{digits}f} %"


def _number(value: float, digits: int) -> str:
    return NONE if math.isnan(value) else f"{value:.{digits}f}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return ""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
