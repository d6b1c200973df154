"""What the doctor looks at: plain facts, so that every check runs without ROS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BEST_EFFORT, RELIABLE = "best_effort", "reliable"


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """Software on this computer.

    Attributes:
        python: Version numbers of Python.
        packages: Package -> version; empty when it is not installed.
        ros_import_error: Why rclpy cannot be imported; empty when it can.
        messages_import_error: The same of this package's compiled messages.
        environment: Environment variables that matter, as far as they are set.
        profile_readable: Whether the Fast DDS profile that the environment names is a file.
    """

    python: tuple[int, int, int]
    packages: Mapping[str, str]
    ros_import_error: str = ""
    messages_import_error: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    profile_readable: bool = False


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One step of loading: model, statistics, store, drafter.

    Attributes:
        name: What was loaded.
        text: What was found, or why not.
        failed: Whether it was refused; the text then says what to do.
        skipped: Whether it was not tried.
    """

    name: str
    text: str
    failed: bool = False
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """One publisher or subscription of a topic.

    Attributes:
        node: Full name of its node.
        kind: Message type.
        reliability: `best_effort` or `reliable`.
        durability: `volatile` or `transient_local`.
    """

    node: str
    kind: str
    reliability: str = RELIABLE
    durability: str = "volatile"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What was seen of one topic while the doctor listened.

    Attributes:
        name: Full name, after remapping.
        publishers: Who publishes.
        subscriptions: Who listens, without the doctor.
        received: Messages that arrived.
        seconds: How long it listened, seconds.
        stamps_ns: Header stamps of the messages, nanoseconds, in order of arrival.
        ages_ns: Node time at arrival minus the stamp, nanoseconds, message by message.
        frame_id: Frame in the last header.
        values: Facts of the last message: `encoding`, `width`, `height`, `bytes`, `error`,
            `joints`, `position` ... as text.
    """

    name: str
    publishers: tuple[PeerFacts, ...] = ()
    subscriptions: tuple[PeerFacts, ...] = ()
    received: int = 0
    seconds: float = 1.0
    stamps_ns: tuple[int, ...] = ()
    ages_ns: tuple[int, ...] = ()
    frame_id: str = ""
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def hz(self) -> float:
        """Messages per second of arrival."""
        return self.received / self.seconds if self.seconds > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """The ROS graph while the doctor listened.

    Attributes:
        topics: Role -> what was seen: `image <camera>`, `ee_pose`, `joint_states`, `instruction`,
            `twist_cmd`, `gripper_cmd`, `/clock`.
        image_topics: All topics of the graph that carry pictures, for suggestions.
        use_sim_time: Whether nodes started like the doctor take their time from /clock.
        statuses: Diagnostic status name -> (level 0..3, text).
        rmw: Identifier of the middleware.
    """

    topics: Mapping[str, TopicFacts]
    image_topics: tuple[str, ...] = ()
    use_sim_time: bool = False
    statuses: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    rmw: str = ""
