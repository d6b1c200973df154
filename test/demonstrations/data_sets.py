"""Tiny real data sets of foreign formats, written by hand: no code of the readers is used here.

The robot of all of them: step i moves x by 0.01 * (i + 1) metres before step i + 1 is seen; the
gripper is open first and closes at step CLOSE_AT, and its fingers follow. Pixel (0, 0) of the
picture of step i has red 10 + i, the other corners tell which flip was applied.
"""

from __future__ import annotations

import io
import json
import struct

import numpy as np
from PIL import Image

TASK = "push the plate"
STEPS, CLOSE_AT, SIDE = 8, 4, 16
GREEN, BLUE = 100, 200  # marks of the corners top right and bottom left


def picture(step, view=0, side=SIDE):
    """Red of the top left corner 10 + step, green top right, blue bottom left; grey elsewhere."""
    image = np.full((side, side, 3), 50 + view, dtype=np.uint8)
    half = side // 2
    image[:half, :half] = (10 + step, 0, 0)
    image[:half, half:, 1] = GREEN
    image[half:, :half, 2] = BLUE
    return image


def pictures(steps=STEPS, view=0, side=SIDE, *, turn=0):
    """All pictures; turn 180 or "v" spoils them the way a reader has to repair."""
    stack = np.stack([picture(step, view, side) for step in range(steps)])
    if turn == "v":
        return stack[:, ::-1]
    return stack[:, ::-1, ::-1] if turn == 180 else stack


def openings(steps=STEPS):
    return (np.arange(steps) < CLOSE_AT).astype(np.float64)


def positions(steps=STEPS):
    """What is measured when step i is seen."""
    x = 0.4 + 0.01 * np.cumsum(np.arange(steps))  # 0.40, 0.41, 0.43, 0.46 ...
    return np.column_stack([x, np.zeros(steps), np.full(steps, 0.3)])


def deltas(steps=STEPS):
    """(T, 7), model convention: metres, 1 = open."""
    actions = np.zeros((steps, 7))
    actions[:, 0] = 0.01 * (np.arange(steps) + 1)
    actions[:, 6] = openings(steps)
    return actions


def fingers(steps=STEPS):
    """Both finger positions: 0.04 each when open, following one step after the command."""
    gap = np.where(np.arange(steps) <= CLOSE_AT, 0.04, 0.0)
    return np.column_stack([gap, -gap])


def libero_actions(steps=STEPS):
    """LIBERO's sign: -1 open, +1 closed."""
    actions = deltas(steps)
    actions[:, 6] = 1.0 - 2.0 * actions[:, 6]
    return actions


def libero_state(steps=STEPS):
    """(T, 8): position, axis angle, fingers."""
    return np.column_stack([positions(steps), np.zeros((steps, 3)), fingers(steps)])


# --- LIBERO HDF5 ---------------------------------------------------------------------------------


def write_hdf5(path, demos=2, *, change=None, steps=STEPS, turn=180, attributes=True, side=SIDE):
    """Demonstrations 0, 2, 4 ... (ids may have holes); `change(group)` spoils the last one."""
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        if attributes:
            data.attrs["problem_info"] = json.dumps({"language_instruction": TASK})
            data.attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 20}})
            data.attrs["bddl_file_name"] = "libero/bddl_files/libero_goal/push.bddl"
        for number in range(demos):
            demo = data.create_group(f"demo_{2 * number}")
            actions = libero_actions(steps)
            actions[:, 1] = 0.001 * number
            demo["actions"] = actions
            demo["dones"] = np.eye(1, steps, steps - 1, dtype=np.uint8)[0]
            demo["obs/agentview_rgb"] = pictures(steps, 0, side, turn=turn)
            demo["obs/eye_in_hand_rgb"] = pictures(steps, 1, side, turn=turn)
            demo["obs/ee_pos"] = positions(steps)
            demo["obs/ee_ori"] = np.zeros((steps, 3))
            demo["obs/gripper_states"] = fingers(steps)
        if change:
            change(demo)
    return path


# --- RLDS ----------------------------------------------------------------------------------------

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901  (CRC-32C, reversed)
    CRC_TABLE.append(byte)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for value in data:
        crc = CRC_TABLE[(crc ^ value) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number):
    out = bytearray()
    number &= (1 << 64) - 1
    while True:
        out.append((number & 0x7F) | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features):
    """tf.train.Example of name -> list of bytes, float array, or list of int."""
    entries = b""
    for name, values in features.items():
        if isinstance(values, np.ndarray):
            kind = field(2, field(1, values.astype("<f4").tobytes()))
        elif values and isinstance(values[0], bytes):
            kind = field(1, b"".join(field(1, value) for value in values))
        else:
            kind = field(3, field(1, b"".join(map(varint, values))))
        entries += field(1, field(1, name.encode()) + field(2, kind))
    return field(1, entries)


def record(data):
    length = struct.pack("<Q", len(data))
    return b"".join(
        [length, struct.pack("<I", masked_crc(length)), data, struct.pack("<I", masked_crc(data))]
    )


def encoded(image, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


def rlds_episode(steps=STEPS, number=0, **changes):
    actions = libero_actions(steps)
    actions[:, 1] = 0.001 * number
    features = {
        "steps/action": actions.ravel(),
        "steps/observation/image": [encoded(picture(i)) for i in range(steps)],
        "steps/observation/wrist_image": [encoded(picture(i, 1)) for i in range(steps)],
        "steps/observation/state": libero_state(steps).ravel(),
        "steps/language_instruction": [TASK.encode()] * steps,
        "steps/reward": np.eye(1, steps, steps - 1)[0],
        "steps/is_last": [int(i == steps - 1) for i in range(steps)],
        "episode_metadata/file_path": [b"/data/raw.hdf5"],
    }
    features.update(changes)
    return {name: values for name, values in features.items() if values is not None}


def _tensor(*shape):
    return {"tensor": {"shape": {"dimensions": [str(s) for s in shape]}, "dtype": "float32"}}


def write_rlds(folder, shards, *, lengths=None, features=None, **info):
    """Shards are lists of episodes (features), or raw bytes."""
    folder.mkdir(parents=True)
    for number, shard in enumerate(shards):
        path = folder / f"libero-train.tfrecord-{number:05d}-of-{len(shards):05d}"
        raw = shard if isinstance(shard, bytes) else b"".join(record(example(e)) for e in shard)
        path.write_bytes(raw)
    image = {"image": {"shape": {"dimensions": [str(SIDE), str(SIDE), "3"]}, "dtype": "uint8"}}
    observation = {"image": image, "wrist_image": image, "state": _tensor(8)}
    steps = {
        "action": _tensor(7),
        "observation": {"featuresDict": {"features": observation}},
        "language_instruction": {"text": {}},
        "reward": _tensor(),
    }
    layout = {
        "steps": {"sequence": {"feature": {"featuresDict": {"features": features or steps}}}},
        "episode_metadata": {"featuresDict": {"features": {"file_path": {"text": {}}}}},
    }
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": layout}}))
    lengths = lengths or [len(shard) for shard in shards]
    splits = [{"name": "train", "shardLengths": [str(length) for length in lengths]}]
    about = {"name": "libero", "fileFormat": "tfrecord", "splits": splits, **info}
    (folder / "dataset_info.json").write_text(json.dumps(about))
    return folder


# --- LeRobot -------------------------------------------------------------------------------------

CAMERAS = ("observation.images.image", "observation.images.wrist_image")


def write_video(path, images, fps=10):
    """Lossless: RGB planes, quantiser 0."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264rgb", rate=fps, options={"qp": "0"})
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = "rgb24"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def lerobot_rows(episode, first, steps=STEPS, fps=10, **changes):
    actions = libero_actions(steps)
    actions[:, 1] = 0.001 * episode
    rows = {
        "action": list(actions.astype(np.float32)),
        "observation.state": list(libero_state(steps).astype(np.float32)),
        "timestamp": (np.arange(steps) / fps).astype(np.float32),
        "frame_index": np.arange(steps),
        "episode_index": np.full(steps, episode),
        "index": first + np.arange(steps),
        "task_index": np.zeros(steps, dtype=np.int64),
    }
    rows.update(changes)
    return rows


def write_table(path, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({k: v if isinstance(v, pa.Array) else list(v) for k, v in rows.items()}), path
    )


def _features(dtype="video", cameras=CAMERAS):
    return {
        **{c: {"dtype": dtype, "shape": [SIDE, SIDE, 3]} for c in cameras},
        "action": {"dtype": "float32", "shape": [7]},
        "observation.state": {"dtype": "float32", "shape": [8]},
    }


def _info(root, version, fps, **info):
    (root / "meta").mkdir(parents=True)
    content = {"codebase_version": version, "fps": fps, "features": _features(), **info}
    (root / "meta/info.json").write_text(json.dumps(content))


def write_lerobot_v2(root, lengths=(STEPS, STEPS - 1), *, fps=10, change=None, stats=None, **info):
    """A file per episode and camera; `change` alters the rows of the last episode."""
    defaults = {
        "chunks_size": 1000,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/"
        "episode_{episode_index:06d}.mp4",
    }
    _info(root, "v2.1", fps, **{**defaults, **info})
    lines, first = [], 0
    for number, steps in enumerate(lengths):
        rows = lerobot_rows(number, first, steps, fps)
        if change and number == len(lengths) - 1:
            rows = change(rows)
        write_table(root / f"data/chunk-000/episode_{number:06d}.parquet", rows)
        for view, key in enumerate(CAMERAS):
            path = root / f"videos/chunk-000/{key}/episode_{number:06d}.mp4"
            write_video(path, pictures(steps, view), fps)
        lines.append({"episode_index": number, "tasks": [TASK], "length": steps})
        first += steps
    (root / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": TASK}) + "\n")
    if stats:
        (root / "meta/stats.json").write_text(json.dumps(stats))
    return root


def write_lerobot_v3(root, lengths=(STEPS, STEPS - 1), *, fps=10, episodes_change=None, **info):
    """All episodes in one parquet file and one video per camera."""
    defaults = {
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    _info(root, "v3.0", fps, **{**defaults, **info})
    rows, entries, first = {}, [], 0
    for number, steps in enumerate(lengths):
        for name, values in lerobot_rows(number, first, steps, fps).items():
            rows.setdefault(name, []).extend(values)
        entry = {"episode_index": number, "tasks": [TASK], "length": steps}
        entry.update({"data/chunk_index": 0, "data/file_index": 0})
        entry.update({"dataset_from_index": first, "dataset_to_index": first + steps})
        for key in CAMERAS:
            entry.update({f"videos/{key}/{n}_index": 0 for n in ("chunk", "file")})
            entry[f"videos/{key}/from_timestamp"] = first / fps
            entry[f"videos/{key}/to_timestamp"] = (first + steps) / fps
        entries.append(entry)
        first += steps
    write_table(root / "data/chunk-000/file-000.parquet", rows)
    for view, key in enumerate(CAMERAS):
        stacks = [pictures(steps, view) for steps in lengths]
        write_video(root / f"videos/{key}/chunk-000/file-000.mp4", np.concatenate(stacks), fps)
    if episodes_change:
        episodes_change(entries)
    columns = {name: [entry[name] for entry in entries] for name in entries[0]}
    write_table(root / "meta/episodes/chunk-000/file-000.parquet", columns)
    write_table(root / "meta/tasks.parquet", {"task_index": [0], "__index_level_0__": [TASK]})
    return root
