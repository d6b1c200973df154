"""What `heisd replay` says beside the agreement: projected time, fall-backs, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from heisd_ros.config import HeisdConfig
from heisd_ros.decode.methods import METHODS
from heisd_ros.offline.latency_model import DeviceProfile, autoregressive, project_step
from heisd_ros.offline.run_record import RunRecord
from heisd_ros.types import DecodeReport


def projections(
    reports: Sequence[DecodeReport], config: HeisdConfig, profile: DeviceProfile | None
) -> tuple[str, ...]:
    """Return what the decisions would have taken on a device, in a sentence."""
    method = METHODS.get(config.decode.method)
    if profile is None or method is None:
        return ()
    times = [project_step(report, profile, method) for report in reports]
    mean = sum(times) / len(times)
    return (
        f"Projected, not measured: on the device of profile {profile.name!r} one of these "
        f"decisions takes {mean:.1f} ms on average, an autoregressive one "
        f"{autoregressive(profile):.1f} ms.",
    )


def counts_text(record: RunRecord) -> str:
    """Return what fell back and what was left out, one line each, empty when nothing."""
    reasons = Counter(row.reason for row in record.rows if row.reason)
    lines = [f"decision {reason}: {count}\n" for reason, count in sorted(reasons.items())]
    lines += [f"not used, {what}: {count}\n" for what, count in record.counts.items()]
    return "".join(lines)
