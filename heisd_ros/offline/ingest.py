"""`heisd ingest`: make demonstrations, from LIBERO's scripted expert or from a data set.

Each source has options of its own: heisd ingest --source SOURCE --help
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from heisd_ros.demonstrations.readers.catalogue import FORMATS
from heisd_ros.offline import ingest_expert, ingest_files

EXPERT = "expert"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ingest of the chosen source."""
    parser = argparse.ArgumentParser(
        prog="heisd ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--source", choices=[EXPERT, *FORMATS], help="where the demonstrations come from"
    )
    parser.add_argument("--expert", action="store_true", help="the same as --source expert")
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    chosen, rest = parser.parse_known_args(argv)
    if chosen.expert and chosen.source not in (None, EXPERT):
        parser.error(f"--expert contradicts --source {chosen.source}")
    source = EXPERT if chosen.expert else chosen.source
    if source is None:
        if chosen.help:
            parser.print_help()
            return 0
        parser.error("give --source: " + ", ".join([EXPERT, *FORMATS]))
    if chosen.help:
        rest = [*rest, "--help"]
    if source == EXPERT:
        return ingest_expert.main(rest)
    return ingest_files.main(source, rest)
