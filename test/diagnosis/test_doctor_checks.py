import dataclasses

import pytest

from heisd_ros.config import HeisdConfig, make_config
from heisd_ros.diagnosis import check_camera, check_graph, check_system
from heisd_ros.diagnosis.facts import GraphFacts, PeerFacts, StepFacts, SystemFacts, TopicFacts
from heisd_ros.diagnosis.finding import Finding, Level, exit_code, fail, ok, page, skipped, warn

MS = 1_000_000
IMAGE = "sensor_msgs/msg/Image"
TWIST = "geometry_msgs/msg/TwistStamped"
CONFIG = HeisdConfig()
ONE_CAMERA = make_config({"perception.cameras": ["wrist"]})


def camera(**changes):
    facts = TopicFacts(
        name="/wrist/image",
        publishers=(PeerFacts("/driver", IMAGE, "best_effort"),),
        received=50,
        seconds=5.0,
        stamps_ns=(1000 * MS, 1100 * MS),
        ages_ns=(30 * MS, 30 * MS),
        values={"encoding": "rgb8", "width": "96", "height": "96", "bytes": "27648", "error": ""},
    )
    return dataclasses.replace(facts, **changes)


def pose(**changes):
    facts = TopicFacts(
        name="/ee_pose",
        publishers=(PeerFacts("/arm", "geometry_msgs/msg/PoseStamped"),),
        received=500,
        seconds=5.0,
        stamps_ns=(1000 * MS,),
        ages_ns=(5 * MS,),
        frame_id="base",
        values={"error": ""},
    )
    return dataclasses.replace(facts, **changes)


def levels(findings):
    return [finding.level for finding in findings]


def look_at(topic, config=ONE_CAMERA, *, profile=False, known=()):
    facts = GraphFacts({"image wrist": topic}, image_topics=known)
    return check_camera.check_camera("image wrist", facts, config, profile=profile)


def test_a_good_camera_is_one_line_with_size_rate_and_age():
    (finding,) = look_at(camera())
    assert finding == ok("image wrist", "/wrist/image: 96x96 rgb8, 10.0 Hz, 30 ms old")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"publishers": ()}, "nobody publishes /wrist/image"),
        ({"publishers": (PeerFacts("/driver", "sensor_msgs/msg/CompressedImage"),)}, "expected"),
        ({"received": 0}, "nothing arrived in 5 s"),
        ({"values": {"error": "encoding 16UC1 is depth"}}, "16UC1"),
        ({"stamps_ns": (0, 0)}, "stamps are zero"),
        ({"ages_ns": (900 * MS, 900 * MS)}, "0.90 s old, allowed are 0.5 s"),
        ({"ages_ns": (-300 * MS, -300 * MS)}, "0.30 s in the future"),
    ],
)
def test_a_camera_that_cannot_be_used_fails_with_the_cause(changes, words):
    (finding,) = look_at(camera(**changes))
    assert finding.level is Level.FAIL
    assert words in finding.text
    assert finding.remedy


def test_a_missing_camera_names_the_nearest_topic_to_remap():
    known = ("/camera/color/image_raw", "/wrist_cam/image")
    (finding,) = look_at(camera(publishers=()), known=known)
    assert finding.remedy == "remap it: -r wrist/image:=/wrist_cam/image"


def test_a_reliable_subscription_does_not_hear_a_best_effort_camera():
    config = make_config({"perception.cameras": ["wrist"], "ros.camera_reliability": "reliable"})
    (finding,) = look_at(camera(), config)
    assert (finding.level, "best_effort" in finding.remedy) == (Level.FAIL, True)
    reliable = camera(publishers=(PeerFacts("/driver", IMAGE, "reliable"),))
    assert levels(look_at(reliable, config)) == [Level.OK]


def test_large_best_effort_pictures_need_the_profile():
    values = {**camera().values, "width": "640", "height": "480", "bytes": str(640 * 480 * 3)}
    assert levels(look_at(camera(values=values))) == [Level.OK, Level.WARN]
    assert levels(look_at(camera(values=values), profile=True)) == [Level.OK]
    (silent,) = look_at(camera(received=0))
    assert "fastdds_large_images.xml" in silent.remedy


def test_a_slow_camera_is_a_warning():
    (finding,) = look_at(camera(received=10))  # 2 Hz, control_hz is 5
    assert finding.level is Level.WARN
    assert "2.0 Hz" in finding.text


def test_cameras_whose_stamps_never_meet_fail():
    first = camera(stamps_ns=(0, 200 * MS, 400 * MS))
    second = camera(stamps_ns=(100 * MS, 300 * MS, 500 * MS))
    (finding,) = check_camera.check_pairs([first, second], CONFIG)
    assert finding.level is Level.FAIL
    assert finding.text == "stamps 100 ms apart, tolerance 50 ms"
    close = camera(stamps_ns=(10 * MS, 210 * MS, 410 * MS))
    assert levels(check_camera.check_pairs([first, close], CONFIG)) == [Level.OK]


def test_a_pose_in_another_frame_or_from_two_nodes_fails():
    assert levels(check_graph.check_pose(pose(), CONFIG)) == [Level.OK]
    found = check_graph.check_pose(pose(frame_id="world"), CONFIG)
    assert found[-1].name == "ee_pose frame"
    assert found[-1].level is Level.FAIL
    two = pose(publishers=(*pose().publishers, PeerFacts("/other", pose().publishers[0].kind)))
    found = check_graph.check_pose(two, CONFIG)
    assert any(f.level is Level.FAIL and "/arm, /other" in f.text for f in found)


def test_finger_joints_must_be_among_the_joints():
    topic = pose(
        name="/joint_states",
        publishers=(PeerFacts("/arm", "sensor_msgs/msg/JointState"),),
        values={"joints": "panda_joint1 panda_finger_joint1"},
    )
    (finding,) = check_graph.check_joints(topic, CONFIG)
    assert finding.level is Level.FAIL
    assert "no joint panda_finger_joint2" in finding.text


def test_a_second_publisher_of_commands_is_a_failure():
    listener = (PeerFacts("/servo_node", TWIST),)
    ours = PeerFacts("/decoder_node", TWIST)
    alone = TopicFacts("/twist_cmd", (ours,), listener)
    assert check_graph.check_output("twist_cmd", alone).level is Level.OK
    stranger = TopicFacts("/twist_cmd", (ours, PeerFacts("/joystick", TWIST)), listener)
    finding = check_graph.check_output("twist_cmd", stranger)
    assert finding.level is Level.FAIL
    assert "/joystick" in finding.text
    twice = TopicFacts("/twist_cmd", (ours, ours), listener)
    assert check_graph.check_output("twist_cmd", twice).level is Level.FAIL


def test_the_input_of_servo_is_looked_at_where_there_is_one():
    servo, adapter = PeerFacts("/servo_node", TWIST), PeerFacts("/servo_adapter_node", TWIST)
    topic = TopicFacts(
        "/servo_node/delta_twist_cmds", (adapter, PeerFacts("/joy", TWIST)), (servo,)
    )
    facts = GraphFacts({"servo twist": topic})
    found = check_graph.check_graph(facts, CONFIG, profile=False)
    (finding,) = [f for f in found if f.name == "servo twist"]
    assert finding.level is Level.FAIL
    assert "/joy" in finding.text
    assert "/servo_adapter_node" not in finding.text
    nobody = GraphFacts({"servo twist": TopicFacts("/servo_node/delta_twist_cmds")})
    found = check_graph.check_graph(nobody, CONFIG, profile=False)
    assert "servo twist" not in [f.name for f in found]


def test_a_listener_of_another_type_is_a_failure_and_none_a_warning():
    plain = TopicFacts("/twist_cmd", (), (PeerFacts("/base", "geometry_msgs/msg/Twist"),))
    assert check_graph.check_output("twist_cmd", plain).level is Level.FAIL
    assert check_graph.check_output("twist_cmd", TopicFacts("/twist_cmd")).level is Level.WARN


@pytest.mark.parametrize(
    ("sim", "publishers", "received", "level"),
    [
        (False, (), 0, Level.OK),
        (True, (), 0, Level.FAIL),
        (True, (PeerFacts("/sim", "rosgraph_msgs/msg/Clock"),), 0, Level.FAIL),
        (True, (PeerFacts("/sim", "rosgraph_msgs/msg/Clock"),), 9, Level.OK),
        (False, (PeerFacts("/sim", "rosgraph_msgs/msg/Clock"),), 9, Level.WARN),
    ],
)
def test_simulated_time_needs_a_clock(sim, publishers, received, level):
    topic = TopicFacts("/clock", publishers, received=received)
    facts = GraphFacts({"/clock": topic}, use_sim_time=sim)
    assert check_graph.check_clock(facts).level is level


def test_what_our_nodes_say_about_themselves_is_repeated():
    facts = GraphFacts({}, statuses={"decoder_node: decisions": (2, "decision_blocked")})
    found = check_graph.check_graph(facts, CONFIG, profile=False)
    assert found[-1].text == "decision_blocked"
    assert found[-1].level is Level.FAIL


SYSTEM = SystemFacts(
    python=(3, 11, 7),
    packages={"numpy": "2.4.6", "torch": "2.13.0+cpu", "transformers": "5.24.0"},
)


def by_name(facts):
    return {finding.name: finding for finding in check_system.check_system(facts)}


def test_an_installation_that_suffices_has_no_failure():
    assert exit_code(check_system.check_system(SYSTEM)) == 0


@pytest.mark.parametrize(
    ("changes", "name", "level"),
    [
        ({"python": (3, 9, 18)}, "python", Level.FAIL),
        ({"packages": {**SYSTEM.packages, "torch": ""}}, "torch", Level.FAIL),
        ({"packages": {**SYSTEM.packages, "torch": "2.4.1"}}, "torch", Level.FAIL),
        ({"packages": {**SYSTEM.packages, "transformers": "6.0"}}, "transformers", Level.WARN),
        ({"ros_import_error": "no rclpy"}, "rclpy", Level.SKIPPED),
        ({"messages_import_error": "no messages"}, "heisd_ros.msg", Level.FAIL),
        (
            {"environment": {"FASTRTPS_DEFAULT_PROFILES_FILE": "/gone.xml"}},
            "Fast DDS profile",
            Level.FAIL,
        ),
        ({"environment": {"ROS_SECURITY_ENABLE": "true"}}, "SROS 2", Level.WARN),
    ],
)
def test_what_is_wrong_with_an_installation_is_said(changes, name, level):
    assert by_name(dataclasses.replace(SYSTEM, **changes))[name].level is level


def test_our_own_errors_are_split_into_what_and_what_to_do():
    step = StepFacts("store", "store x was built with another encoder; rebuild it", failed=True)
    (finding,) = check_system.check_steps([step])
    assert finding == fail("store", "store x was built with another encoder", "rebuild it")


def test_the_page_has_a_line_per_finding_and_its_remedy_below():
    findings = [ok("a", "1"), warn("long", "2", "do"), fail("c", "3", "fix"), skipped("d", "4")]
    assert page(findings).splitlines() == [
        "ok    a     1",
        "warn  long  2",
        "            -> do",
        "FAIL  c     3",
        "            -> fix",
        "--    d     4",
        "1 ok, 1 to look at, 1 failed, 1 not checked",
    ]


@pytest.mark.parametrize(("level", "code"), [(Level.OK, 0), (Level.WARN, 0), (Level.FAIL, 1)])
def test_only_a_failure_changes_the_exit_code(level, code):
    assert exit_code([ok("a", ""), Finding(level, "b", "")]) == code
