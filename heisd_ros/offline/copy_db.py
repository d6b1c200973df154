"""`heisd copy-db`: copy a demonstration store to a Qdrant server, or back into a folder."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.store_address import KEY_HELP, parse_address
from heisd_ros.offline.build_db import report

COPY_TIMEOUT_S = 60
"""Seconds for one batch of rows; a search is held to far less."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("direction", choices=("to-qdrant", "from-qdrant"), help="which way")
    add("store", type=Path, help="folder of the store")
    add(
        "--url",
        required=True,
        help=f"the server and collection, like grpc://localhost:6334/heisd; for a key {KEY_HELP}",
    )
    add("--collection", default="", help="name of the collection, instead of the one in --url")
    add("--replace", action="store_true", help="replace an existing collection")
    add("--alias", default="", help="name that leads to the collection when it is complete")
    add("--collection-per-task", action="store_true", help="as in the paper, instead of one index")
    add("--shards", type=int, help="parts spread over the nodes of a cluster")
    add("--replicas", type=int, help="copies of every part")
    add("--confirmed", type=int, help="copies that must have a batch before it counts as written")


def main(argv: Sequence[str]) -> int:
    """Copy every row and the manifest, bit for bit, and print what was copied."""
    parser = argparse.ArgumentParser(prog="heisd copy-db", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args(argv)
    from heisd_ros.demonstrations import qdrant_transfer as transfer
    from heisd_ros.demonstrations.qdrant_connection import connect

    address = parse_address(options.url)
    if options.collection:
        address = dataclasses.replace(address, collection=options.collection)
    client = connect(address, timeout_s=COPY_TIMEOUT_S)
    if options.direction == "to-qdrant":
        layout = transfer.Layout(
            options.collection_per_task, options.shards, options.replicas, options.confirmed
        )
        with MemoryStore.open(options.store, verify=True) as store:
            transfer.export_to_qdrant(
                store, client, address.collection, replace=options.replace, layout=layout
            )
            manifest = store.manifest
        if options.alias:
            transfer.point_alias(client, options.alias, address.collection)
    else:
        manifest = transfer.import_from_qdrant(client, address.collection, options.store)
    sys.stdout.write(report(manifest, options.store) + "\n")
    return 0
