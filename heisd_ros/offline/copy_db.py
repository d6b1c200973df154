"""`heisd copy-db`: copy a demonstration store to a Qdrant server, or back into a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.offline.build_db import report

COPY_TIMEOUT_S = 60
"""Seconds for one batch of rows; a search is held to far less."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument("direction", choices=("to-qdrant", "from-qdrant"), help="which way")
    parser.add_argument("store", type=Path, help="folder of the store")
    parser.add_argument("--url", required=True, help="the server, like http://localhost:6333")
    parser.add_argument("--collection", default="heisd", help="name of the collection")
    parser.add_argument("--api-key", default="", help="key of the server")
    parser.add_argument("--rest", action="store_true", help="use REST instead of gRPC")
    parser.add_argument("--replace", action="store_true", help="replace an existing collection")


def main(argv: Sequence[str]) -> int:
    """Copy every row and the manifest, bit for bit, and print what was copied."""
    parser = argparse.ArgumentParser(prog="heisd copy-db", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    from heisd_ros.demonstrations.qdrant_store import connect
    from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant, import_from_qdrant

    client = connect(
        arguments.url,
        api_key=arguments.api_key,
        prefer_grpc=not arguments.rest,
        timeout_s=COPY_TIMEOUT_S,
    )
    if arguments.direction == "to-qdrant":
        with MemoryStore.open(arguments.store, verify=True) as store:
            export_to_qdrant(store, client, arguments.collection, replace=arguments.replace)
            manifest = store.manifest
    else:
        manifest = import_from_qdrant(client, arguments.collection, arguments.store)
    sys.stdout.write(report(manifest, arguments.store) + "\n")
    return 0
