"""The report of one or more runs as one HTML file that needs nothing beside itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.decode.report import summarise
from heisd_ros.errors import DataError
from heisd_ros.offline import page_parts as html
from heisd_ros.offline import plots
from heisd_ros.offline.page_parts import number, percent, text
from heisd_ros.offline.palette import MODES, mode_of
from heisd_ros.offline.report_sections import (
    BASELINE,
    definitions,
    faults,
    is_replay,
    method_name,
    provenance,
)
from heisd_ros.offline.run_record import RunRecord

TIME_NOTE = (
    "Wall times were taken on the machine named at the end of this page. On a CPU with a small "
    "model one forward pass costs little, and other work on the machine shows in them, so they "
    "are not the paper's times, which were taken with a 7-billion-parameter model on a GPU. "
    "Forward passes and accept length do not depend on the machine."
)


def write_report(records: Sequence[RunRecord], out: str | Path) -> Path:
    """Write the page and return its path.

    Args:
        records: Runs to show, the most interesting one first; a run with method `ar` becomes the
            baseline of the comparison.
        out: File to write; its folder is made.

    Raises:
        DataError: If there is no record, or one without a single decision.
        MissingDependencyError: If matplotlib is not installed.
    """
    if not records:
        raise DataError("a report needs at least one recorded run, got none")
    for record in records:
        if not record.rows and not record.crash:
            raise DataError(
                f"the run of {record.instruction!r} with {record.method} holds no decision; "
                "there is nothing to report"
            )
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(report_html(records), encoding="utf-8")
    return out


def report_html(records: Sequence[RunRecord]) -> str:
    """Return the page as text; see `write_report`."""
    shown = [record for record in records if record.rows]
    parts = [
        _headline(records),
        _tiles(records),
        _comparison(records),
        _pictures(shown),
        _paths(shown),
        _decoding(shown),
        _times(shown),
        faults(records),
        definitions(),
        provenance(records),
    ]
    return html.page(f"HeiSD run: {records[0].instruction}", parts)


def same_start(records: Sequence[RunRecord]) -> bool:
    """Return whether all runs began in one known initial state with one instruction."""
    starts = {(r.suite, r.task, r.init, r.instruction) for r in records}
    return len(starts) == 1 and records[0].init is not None


def _headline(records: Sequence[RunRecord]) -> str:
    verdicts = " ".join(
        f"{text(method_name(record))} {html.badge(record.outcome)}" for record in records
    )
    return (
        '<header><div class="kicker">HeiSD for ROS 2, report of a run</div>'
        f"<h1>&ldquo;{text(records[0].instruction)}&rdquo;</h1>"
        f'<p class="lead">{text(_what_was_done(records))}</p><p>{verdicts}</p>'
        f'<p class="lead">{text(" ".join(map(_in_words, records)))}</p></header>'
    )


def _in_words(record: RunRecord) -> str:
    """Return what one run came to, as a sentence."""
    name, figures = method_name(record), summarise(record.reports())
    if record.crash or not record.rows:
        return f"{name} ended in an error."
    ends = {"success": "solved the task", "failure": "did not solve the task"}
    result = ends.get(record.outcome, "was not judged")
    length = f"{record.steps} steps" if record.steps else f"{len(record.rows)} decisions"
    per_decision = f"{number(figures.forwards_per_step)} forward passes per decision"
    return f"{name} {result} in {length} with {per_decision}."


def _what_was_done(records: Sequence[RunRecord]) -> str:
    first = records[0]
    place = f"{first.suite} task {first.task}" if first.task is not None else first.suite
    start = f", initial state {first.init}" if first.init is not None else ""
    if is_replay(first):
        return (
            "The pictures and poses of a recorded run, decoded again without moving an arm: the "
            "new decisions did not change what came next."
        )
    if len(records) == 1:
        where = f" ({place}{start})" if place else ""
        return f"One run{where}. Decoding: {method_name(first)}."
    names = " and ".join(method_name(record) for record in records)
    if same_start(records):
        return f"The same scene ({place}{start}), once with each method: {names}."
    return f"{len(records)} runs that did not all begin in the same state: {names}."


def _tiles(records: Sequence[RunRecord]) -> str:
    record = records[0]
    figures = summarise(record.reports())
    base = next((r for r in records[1:] if r.method == BASELINE), None)
    against = ""
    if base is not None and base.rows and figures.forwards_per_step > 0:
        ratio = summarise(base.reports()).forwards_per_step / figures.forwards_per_step
        against = f"{ratio:.1f} times fewer than autoregressive"
    steps = f"{record.steps} control steps" if record.steps else f"{len(record.rows)} decisions"
    tiles = [
        html.tile("Outcome", record.outcome, steps),
        html.tile("Forward passes per decision", number(figures.forwards_per_step), against),
        html.tile("Accept length, tokens of 7", number(figures.accept_length), "verified drafts"),
        html.tile("Executed without verification", percent(figures.skip_share), "of decisions"),
    ]
    name = f"{method_name(record)} in four figures"
    return f'<h2>{text(name)}</h2><div class="tiles">{"".join(tiles)}</div>'


def _comparison(records: Sequence[RunRecord]) -> str:
    figures = [summarise(record.reports()) for record in records]
    head = ["", *(text(method_name(record)) for record in records)]
    rows = [
        ["Outcome", *(html.badge(record.outcome) for record in records)],
        ["Control steps", *(str(record.steps or html.NO_VALUE) for record in records)],
        ["Decisions", *(str(len(record.rows)) for record in records)],
        ["Forward passes per decision", *(number(f.forwards_per_step) for f in figures)],
        ["Accept length [tokens]", *(number(f.accept_length) for f in figures)],
        ["How the decisions were made", *(_ribbon(record) for record in records)],
        *_mode_rows(records),
        ["Time per decision, median [ms]", *(number(f.total_ms_p50, 1) for f in figures)],
        ["Time per decision, 99th percentile [ms]", *(number(f.total_ms_p99, 1) for f in figures)],
    ]
    notes = [*dict.fromkeys(note for record in records for note in record.notes), TIME_NOTE]
    below = "".join(f'<p class="quiet">{text(note)}</p>' for note in notes)
    return html.section("In figures", html.card(html.table(head, rows), below))


def _mode_rows(records: Sequence[RunRecord]) -> list[list[str]]:
    counts = [Counter(mode_of(row) for row in record.rows) for record in records]
    rows = []
    for mode, look in MODES.items():
        if any(count[mode] for count in counts):
            name = f'<i class="swatch" style="background:{look.colour}"></i>{text(look.label)}'
            shares = [count[mode] / max(sum(count.values()), 1) for count in counts]
            rows.append([name, *(percent(share) for share in shares)])
    return rows


def _ribbon(record: RunRecord) -> str:
    """Return the modes of the whole run as one thin bar, in time order."""
    runs: list[tuple[str, int]] = []
    for row in record.rows:
        mode = mode_of(row)
        if runs and runs[-1][0] == mode:
            runs[-1] = (mode, runs[-1][1] + 1)
        else:
            runs.append((mode, 1))
    bars = "".join(
        f'<i style="flex:{count};background:{MODES[mode].colour}"></i>' for mode, count in runs
    )
    return f'<div class="ribbon">{bars}</div>'


def _pictures(records: Sequence[RunRecord]) -> str:
    cards = []
    for record in records:
        cameras = dict.fromkeys(frame.camera for frame in record.frames)
        strips = "".join(_strip(record, camera) for camera in cameras)
        if strips:
            cards.append(html.card(strips, title=method_name(record)))
    intro = "Pictures that the cameras sent at key moments of the run, in time order."
    return html.section("What happened", *cards, intro=intro) if cards else ""


def _strip(record: RunRecord, camera: str) -> str:
    """Return the key pictures of one camera side by side."""
    frames = sorted((f for f in record.frames if f.camera == camera), key=lambda f: f.step)
    cells = "".join(
        "<figure>"
        + html.image(html.png_of(frame.image), f"{camera} camera, {frame.moment}")
        + f"<figcaption><b>{text(frame.moment)}</b>decision {frame.step}, "
        f"{frame.stamp_s:.1f} s</figcaption></figure>"
        for frame in frames
    )
    name = camera.replace("_", " ")
    return f'<p class="quiet">{text(name)} camera</p><div class="strip">{cells}</div>'


def _paths(records: Sequence[RunRecord]) -> str:
    limits = plots.path_limits(records)
    cards = [
        html.card(
            html.figure(
                plots.path_plot(record, limits),
                f"End-effector path of the {method_name(record)} run",
                "Measured end-effector positions; the colour says how the action that left each "
                "position was decoded. All runs have the same scale.",
            ),
            title=method_name(record),
        )
        for record in records
    ]
    intro = (
        "HeiSD drafts from retrieved demonstrations while the arm moves straight and fast, and "
        "falls back where it turns or works in detail."
    )
    return html.section("Where the arm went", html.pair(cards), intro=intro) if cards else ""


def _decoding(records: Sequence[RunRecord]) -> str:
    cards = [
        html.card(
            html.figure(
                plots.decoding_plot(record),
                f"F, mode and forward passes of the {method_name(record)} run",
                "Top: the kinematic metric F of the last positions and the boundary that chooses "
                "the draft's source. Bottom: forward passes of the model in each decision.",
            ),
            title=method_name(record),
        )
        for record in records
    ]
    return html.section("How each action was decoded", html.pair(cards)) if cards else ""


def _times(records: Sequence[RunRecord]) -> str:
    cards = [
        html.card(
            html.figure(
                plots.time_plot(record), f"Time per stage of the {method_name(record)} run"
            ),
            html.table(["Stage", "mean [ms]"], _stage_rows(record)),
            title=method_name(record),
        )
        for record in records
    ]
    return html.section("Where the time went", html.pair(cards), intro=TIME_NOTE) if cards else ""


def _stage_rows(record: RunRecord) -> list[list[str]]:
    rows = record.rows
    means = {
        stage: sum(plots.stage_time(row, stage) for row in rows) / len(rows)
        for stage in plots.stage_names(rows)
    }
    if any("total" in row.stage_ms for row in rows):
        means["total"] = summarise(record.reports()).stage_ms["total"]
    return [[text(stage), number(mean)] for stage, mean in means.items()]
