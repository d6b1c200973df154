"""A made-up run with known figures, for tests of records and pages."""

from __future__ import annotations

import math

import numpy as np

from heisd_ros.offline.run_record import KeyFrame, RunRecord, StepRow

NAN = float("nan")


def arc_position(step, steps):
    """A pick-and-place like arc: down, up, over, down."""
    t = step / max(steps - 1, 1)
    height = 0.25 - 0.18 * math.exp(-(((t - 0.4) / 0.09) ** 2)) - 0.12 * max(0.0, t - 0.8) * 5
    return (-0.2 + 0.25 * t, 0.15 * math.sin(3.0 * t), height)


def heisd_row(step, steps):
    coarse = not 0.3 < step / steps < 0.55
    skipped = coarse and step % 9 == 4
    kind = "retrieval" if coarse else "drafter"
    return StepRow(
        stamp_s=step * 0.05,
        position=arc_position(step, steps),
        gripper=1.0 if step < 0.4 * steps or step > 0.9 * steps else 0.3,
        twist=(0.1, 0.0, -0.1, 0.0, 0.0, 0.2),
        gripper_command=1.0 if step < 0.4 * steps or step > 0.9 * steps else 0.0,
        kind=kind,
        skipped=skipped,
        fused=(0.55 + 0.2 * math.sin(step / 5)) if coarse else 0.1,
        threshold=0.2,
        forwards=0 if skipped else (1 + step % 3 if coarse else 4),
        accept_length=0 if skipped else (7 - step % 3 if coarse else 3),
        nodes=0 if skipped else 40,
        top_score=0.97,
        stage_ms={
            "vision": 8.0 + 0.1 * (step % 7),
            "draft": 0.4,
            "prefill": 5.0,
            "decode": 0.0 if skipped else 4.0,
            "total": 18.0,
        },
        tokens=(31800, 31801, 31802, 31803, 31804, 31805, 31999),
        action=(0.5, 0.0, -0.5, 0.0, 0.0, 0.1, 1.0),
    )


def ar_row(step, steps):
    return StepRow(
        stamp_s=step * 0.05,
        position=arc_position(step, steps),
        gripper_command=1.0 if step < 0.4 * steps or step > 0.9 * steps else 0.0,
        kind="ar",
        fused=0.4,
        forwards=7,
        accept_length=1,
        stage_ms={"vision": 8.0, "prefill": 5.0, "decode": 15.0, "total": 28.5},
    )


def picture(seed, size=32):
    return np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)


def some_run(method="heisd", steps=60, **changes):
    row = ar_row if method == "ar" else heisd_row
    frames = tuple(
        KeyFrame(moment, step, step * 0.05, camera, picture(step))
        for moment, step in (("start", 0), ("gripper closes", 24), ("end", steps - 1))
        for camera in ("third_person", "wrist")
    )
    values = {
        "instruction": "pick up the black bowl and place it on the plate",
        "method": method,
        "success": True,
        "rows": tuple(row(step, steps) for step in range(steps)),
        "frames": frames,
        "suite": "libero_spatial",
        "task": 0,
        "init": 3,
        "steps": steps,
        "source": "made up for a test",
        "config": {"decode.method": method, "trajectory.threshold": 0.2},
        "versions": {"heisd_ros": "0.1.0", "python": "3.11"},
        "machine": "a test machine",
        "commands": (f"heisd demo --method {method}",),
    }
    return RunRecord(**{**values, **changes})
