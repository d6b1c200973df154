"""The console script `heisd`: one verb, one module in `offline/`, or in `nodes/` if it uses ROS."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from heisd_ros.errors import HeisdError

VERBS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "drive the simulated arm through the real nodes and show the report"),
    "ingest": ("ingest", "collect demonstrations, or read them from a data set"),
    "export": ("export", "write demonstrations as a LeRobot data set"),
    "build-db": ("build_db", "build a demonstration store"),
    "inspect-db": ("inspect_db", "look into a demonstration store"),
    "copy-db": ("copy_db", "copy a store to a Qdrant server and back"),
    "train-vla": ("train_vla", "train the small VLA"),
    "train-drafter": ("train_drafter", "train the drafter of a checkpoint"),
    "calibrate": ("calibrate", "measure the ranges and the threshold of F"),
    "evaluate": ("evaluate", "compare methods on the same initial states"),
    "profile": ("profile", "measure this machine's device profile"),
    "replay": ("replay", "feed a bag through the policy without DDS"),
    "report": ("report", "write the report page of recorded runs"),
    "doctor": ("doctor", "check installation, model, store, cameras, clocks, frames"),
    "monitor": ("monitor", "watch a running robot in the terminal"),
}
ROS_VERBS = ("doctor", "monitor")
"""Their modules are in `nodes/`."""


def usage() -> str:
    """Return the help text of `heisd`."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items()]
    return "\n".join(["usage: heisd <verb> [options]", "", *lines, "", "heisd <verb> --help"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; a known error ends with one sentence and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(usage() + "\n")
        return 0 if arguments else 2
    verb, *rest = arguments
    if verb not in VERBS:
        sys.stderr.write(f"heisd: unknown verb {verb!r}\n{usage()}\n")
        return 2
    room = "nodes" if verb in ROS_VERBS else "offline"
    module = importlib.import_module(f"heisd_ros.{room}.{VERBS[verb][0]}")
    try:
        return int(module.main(rest))
    except HeisdError as error:
        sys.stderr.write(f"heisd {verb}: {error}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
