"""Pictures of a bag with gaps in it, played by another process: stop, hold and resume."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from offline import bag_maker as maker
from ros_fakes import wait_until
from sensor_msgs.msg import Image

from bench.reliability.outcome import Outcome, Row, Settings, milliseconds, none_of
from bench.reliability.world import START_S, World, need
from heisd_ros.config import CommandConfig
from heisd_ros.demonstrations.bag_writer import BagWriter
from heisd_ros.nodes import qos
from heisd_ros.nodes.conversions import to_ns

HZ = 10.0
PERIOD_NS = round(1e9 / HZ)
SEEN, MISSING = 15, 12
"""Moments between two gaps, and in a gap."""
WARM_UP = 30
"""Moments before the first gap: nodes find each other meanwhile."""
STOP_S, RESUME_S = 0.35, 0.5
PLAYER = Path(__file__).with_name("play_bag.py")


def recorded_bag(settings: Settings) -> Outcome:
    """Play a bag with so many gaps."""
    gaps = settings.runs(5, 50)
    folder = settings.logs / "bag"
    shutil.rmtree(folder, ignore_errors=True)
    settings.logs.mkdir(parents=True, exist_ok=True)
    write(folder, gaps)
    with World(settings.logs, cameras=True, **{"use_sim_time": True}) as world:
        robot = world.operator
        pictures: list[tuple[float, int]] = []
        robot.create_subscription(
            Image,
            "wrist/image",
            lambda m: pictures.append((robot.now(), to_ns(m.header.stamp))),
            qos.SENSOR,
        )
        world.start_all("perception_node", "decoder_node")
        robot.order()
        player = world.run("play_bag", [sys.executable, str(PLAYER), str(folder)])
        wait_until(lambda: pictures or player.poll() is not None, START_S)
        need(bool(pictures), "a picture of the bag")
        robot.say_again()
        length_s = (WARM_UP + gaps * (SEEN + MISSING)) / HZ
        try:
            player.wait(START_S + 2 * length_s)
        except subprocess.TimeoutExpired:
            need(happened=False, what="the end of the bag")
        del world.processes["play_bag"]
        deaths = world.deaths()
        ages = {
            to_ns(m.image_stamp): (to_ns(m.header.stamp) - to_ns(m.image_stamp)) * 1e-9
            for _, _, m in robot.reports
            if m.decided
        }
        moving, zeros = robot.moving(), robot.zeros()
    stops, resumes, moved, false_stops = judge(pictures, ages, moving, zeros)
    return Outcome(
        f"{gaps} gaps",
        (
            *milliseconds("last picture to first zero, less the picture's age", stops, STOP_S),
            none_of("gaps without a stop or a resumption", gaps - min(len(stops), len(resumes))),
            none_of("commands that moved between the first zero and the next picture", moved),
            *milliseconds("next picture to motion", resumes, RESUME_S),
            none_of("zeros while pictures came", false_stops),
            none_of("processes that ended", deaths),
        ),
        f"A synthetic bag at {HZ:.0f} Hz with gaps of {(MISSING + 1) / HZ:.1f} s, /clock from the "
        "bag; age: when the last picture was decided from.",
    )


def write(folder: Path, gaps: int) -> None:
    """Write pictures, poses and joints of all moments that are not in a gap."""
    kinds = {
        topic: maker.KINDS[topic]
        for topic in ("/joint_states", "/ee_pose", "/third_person/image", "/wrist/image")
    }
    with BagWriter(folder, kinds) as writer:
        for step in moments(gaps):
            ns = maker.START_NS + step * PERIOD_NS
            pose = maker.pose(ns, step % 10)
            pose.header.frame_id = CommandConfig().frame_id
            for topic, message in (
                ("/joint_states", maker.joints(ns, 1.0)),
                ("/ee_pose", pose),
                ("/third_person/image", maker.image(ns, step % 10, "third_person")),
                ("/wrist/image", maker.image(ns, step % 10, "wrist")),
            ):
                writer.put(topic, ns, bytes(maker.TYPES.serialize_cdr(message, kinds[topic])))


def moments(gaps: int) -> list[int]:
    """Return the numbers of the moments in the bag: a warm-up, then gap and pictures in turn."""
    found = list(range(WARM_UP))
    for gap in range(gaps):
        start = WARM_UP + gap * (SEEN + MISSING) + MISSING
        found += range(start, start + SEEN)
    return found


def judge(
    pictures: list[tuple[float, int]],
    ages: dict[int, float],
    moving: list[float],
    zeros: list[float],
) -> tuple[list[float], list[float], int, int]:
    """Return times to stop, times to resume, motion in a hold, and zeros without a gap.

    Args:
        pictures: (arrival, stamp in nanoseconds) in order.
        ages: Age of each picture when it was decided from, seconds, by stamp.
        moving: Arrivals of commands that move.
        zeros: Arrivals of zeros.
    """
    stops: list[float] = []
    resumes: list[float] = []
    moved = allowed = 0
    begin = min((at for at in moving), default=0.0)
    for (last, stamp_ns), (fresh, fresh_ns) in pairwise(pictures):
        if fresh_ns - stamp_ns < MISSING * PERIOD_NS:
            continue
        held = [at for at in zeros if last < at < fresh]
        again = [at for at in moving if at >= fresh]
        if held:
            stops.append(held[0] - last - ages.get(stamp_ns, 0.0))
            moved += sum(held[0] < at < fresh for at in moving)
        if again:
            resumes.append(again[0] - fresh)
            allowed += sum(last < at < again[0] for at in zeros)
    end = pictures[-1][0]
    return stops, resumes, moved, sum(begin < at < end for at in zeros) - allowed


ROWS = (
    Row(
        "recorded_bag",
        "A bag with gaps, played into the nodes",
        "zero 0.35 s + the picture's age after the last picture, zeros in the gap, motion within "
        "0.5 s, no other stop",
        recorded_bag,
    ),
)
