"""A tiny model, the features of one picture, and a server that has that picture's demonstration."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from heisd_ros.types import Frame

CAMERAS = ("third_person", "wrist")
TASK = "go"
FACTS, STORE, SEEN = "values.json", "store", "seen.npz"


def prepare(folder: Path):
    """Make model and store; return (values of the configuration, what `Robot.seen` takes)."""
    from heisd_ros.build import build_target
    from heisd_ros.config import make_config
    from heisd_ros.demonstrations.episode_rows import EpisodeRows
    from heisd_ros.demonstrations.manifest import StoreProfile
    from heisd_ros.demonstrations.writer import StoreWriter
    from heisd_ros.models.tiny import make_tiny_checkpoint

    values = {
        "model.checkpoint": str(make_tiny_checkpoint(folder / "tiny", views=2)),
        "model.device": "cpu",
        "model.threads": 1,
        "model.self_check": False,
        "decode.method": "r_sd",
        "arming.start": "armed",
    }
    target = build_target(make_config(values))
    image = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    features = target.encode(tuple(Frame(image, name, 0) for name in CAMERAS))
    fingerprint = target.info.fingerprint
    profile = StoreProfile(
        fingerprint,
        len(features.embedding),
        cameras=CAMERAS,
        preprocessing={"crop_area": 1.0, "pool": "mean"},
    )
    with StoreWriter(folder / STORE, profile) as writer:
        writer.add_episode(
            EpisodeRows(
                TASK,
                "episode",
                np.stack([features.embedding] * 2),
                np.zeros((2, 7)),
                np.arange(2),
                np.zeros((2, 3)),
                np.ones(2),
            )
        )
        writer.finish()
    return values, (features.patches, features.embedding, CAMERAS, fingerprint)


def serve(folder: Path):
    """Return a loopback server with the store of a prepared folder."""
    from qdrant_loopback import Loopback

    from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant
    from heisd_ros.demonstrations.store import MemoryStore

    server = Loopback()
    export_to_qdrant(MemoryStore.open(folder / STORE), server.client, "heisd")
    return server


def main() -> None:
    """Serve a prepared folder on a port (0: any), say the address, until stdin closes."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    server = serve(folder)
    if port:
        server.stop()
        server.ports["grpc"] = port
        server.start()
    sys.stdout.write(f"{json.dumps(server.ports)}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
