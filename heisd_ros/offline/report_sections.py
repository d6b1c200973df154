"""The closing sections of the report: faults, definitions, and how the runs were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from heisd_ros.decode import report as decode_report
from heisd_ros.decode.methods import METHODS
from heisd_ros.offline import page_parts as html
from heisd_ros.offline.page_parts import text
from heisd_ros.offline.run_record import RunRecord

BASELINE = "ar"
REPLAY = "replay"
"""How the source of a replayed run begins."""


def method_name(record: RunRecord) -> str:
    """Return what a reader calls the method."""
    names = {BASELINE: "Autoregressive", "heisd": "HeiSD"}
    name = names.get(record.method, record.method)
    return f"{name} replayed" if is_replay(record) else name


def is_replay(record: RunRecord) -> bool:
    """Return whether recorded pictures were decoded again, without moving an arm."""
    return record.source.startswith(REPLAY)


def faults(records: Sequence[RunRecord]) -> str:
    """Return what fell back, was limited or could not be read, with counts."""
    rows = []
    for record in records:
        counts = Counter(f"decision: {row.reason}" for row in record.rows if row.reason)
        counts += Counter(f"guard: {row.guard}" for row in record.rows if row.guard)
        counts += Counter({name: count for name, count in record.counts.items() if count})
        if record.end_reason:
            rows.append([text(method_name(record)), "ended", text(record.end_reason)])
        if record.crash:
            rows.append([text(method_name(record)), "crash", text(record.crash)])
        rows += [
            [text(method_name(record)), text(reason), str(count)]
            for reason, count in sorted(counts.items())
        ]
    if not rows:
        rows = [["all runs", "nothing fell back, was clipped or was skipped", ""]]
    head = ["Run", "What", "Count or text"]
    intro = "Everything that fell back, was limited by the command guard, or could not be read."
    return html.section(
        "Reasons and faults", html.card(html.table(head, rows, words=True)), intro=intro
    )


def definitions() -> str:
    """Return what the words of the report mean."""
    entries = {
        "Decision": "One action of seven tokens: three of position, three of rotation, one of "
        "the gripper.",
        "Forward pass": "One run of the large model. Autoregressive decoding needs seven per "
        "decision, one per token.",
        "Draft": "A guess of the whole action. Verifying it costs one forward pass, whatever its "
        "length.",
        "F": "The kinematic metric of the last positions, [0, 1]: high on long straight motion, "
        "low where the arm turns or works in detail (HeiSD Eq. 4-8).",
        "Accept length": accept_length_definition(),
        **{f"Method {name}": method.help for name, method in METHODS.items()},
    }
    body = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in entries.items())
    return html.section("What the words mean", html.card(f"<dl>{body}</dl>"))


def accept_length_definition() -> str:
    """Return the definition as it stands in `decode/report.py`, without mark-up."""
    _, _, after = (decode_report.__doc__ or "").partition("**Accept length**")
    paragraph = after.split("\n\n")[0]
    words = " ".join(paragraph.replace("`", "").split())
    return f"Accept length {words}" if words else ""


def provenance(records: Sequence[RunRecord]) -> str:
    """Return machine, versions, commands and configuration of every run."""
    blocks = []
    for record in records:
        facts = [["Machine", text(record.machine)], ["Source", text(record.source)]]
        facts += [[text(name), text(version)] for name, version in record.versions.items()]
        commands = "\n".join(record.commands)
        config = "\n".join(f"{name}: {value}" for name, value in record.config.items())
        blocks.append(
            html.card(
                html.table(["", ""], [row for row in facts if row[1]], words=True),
                f"<pre>{text(commands)}</pre>" if commands else "",
                html.details("Configuration", f"<pre>{text(config)}</pre>") if config else "",
                title=f"{method_name(record)}: how it was made",
            )
        )
    return html.section("Versions, machine and commands", html.pair(blocks))
