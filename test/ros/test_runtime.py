"""How processes end: exit code, last words, no traceback."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from ros.robot import Robot, speed_of
from ros_fakes import wait_until

from heisd_ros.share import share_dir

HEADER = """
import sys
import threading
from rclpy.node import Node
from heisd_ros.nodes.runtime import run_node, wait_for_stop
"""


@pytest.fixture
def run(domain_id):
    """Start Python code as a process; killed at the end if it is still there."""
    started = []

    def start(code):
        root = share_dir()
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", HEADER + textwrap.dedent(code)],
            cwd=root,
            env={
                **os.environ,
                "ROS_DOMAIN_ID": str(domain_id),
                "PYTHONPATH": f"{root}{os.pathsep}{root / 'test'}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def read_until(process, word):
    """Read lines until one holds the word."""
    for line in process.stdout:
        if word in line:
            return
    pytest.fail(f"the process ended without saying {word!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_loading_ends_at_once_with_zero(run, number):
    process = run("""
        def factory(context):
            print("loading")
            threading.Event().wait(60)
        raise SystemExit(run_node(factory, [], wait_for_stop))
    """)
    read_until(process, "loading")
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in output) == (0, False), output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_running_closes_the_node_and_ends_with_zero(run, number):
    process = run("""
        class Polite(Node):
            def close(self):
                print("closed")
        def work(node, stop):
            print("running", sys.getswitchinterval())
            return wait_for_stop(node, stop)
        raise SystemExit(run_node(lambda c: Polite("polite", context=c), [], work))
    """)
    read_until(process, "running 0.0005")  # the threads of nodes share the interpreter
    process.send_signal(number)
    process.send_signal(number)  # an impatient user
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in output) == (0, False), output
    assert "closed" in output


def test_a_known_error_at_start_is_one_sentence_and_code_two(run):
    process = run("""
        from heisd_ros.errors import ModelError
        def factory(context):
            raise ModelError("no checkpoint folder at /nowhere")
        raise SystemExit(run_node(factory, [], wait_for_stop))
    """)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output.strip().splitlines() == ["refused to start: no checkpoint folder at /nowhere"]


def test_a_defect_in_one_callback_is_logged_and_the_node_goes_on(run):
    process = run("""
        calls = []
        class Faulty(Node):
            def __init__(self, **options):
                super().__init__("faulty", **options)
                self.create_timer(0.05, self.tick)
            def tick(self):
                calls.append(1)
                if len(calls) == 3:
                    print("third call")
                raise ValueError("a defect")
        raise SystemExit(run_node(lambda c: Faulty(context=c), [], wait_for_stop))
    """)
    read_until(process, "third call")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("threading.Event().wait(0.3) or result_of([0.01, 0, 0, 0, 0, 0, 1])", 0),
        ("fail_device() if n == 3 else result_of([0.01, 0, 0, 0, 0, 0, 1])", 3),
    ],
    ids=["signal during a decision", "device error"],
)
def test_the_decoder_leaves_the_arm_at_rest_however_it_ends(run, context, spin, script, code):
    process = run(f"""
        from ros_fakes import ScriptedPolicy, result_of
        from heisd_ros.nodes.decoder_node import DecoderNode, watch_fatal
        def fail_device():
            raise RuntimeError("CUDA error: device-side assert triggered")
        policy = ScriptedPolicy(lambda observation, n: {script})
        arguments = ["--ros-args", "-p", "command.image_timeout_s:=5.0"]
        arguments += ["-p", "arming.start:=armed"]
        raise SystemExit(
            run_node(lambda c: DecoderNode(policy=policy, context=c), arguments, watch_fatal)
        )
    """)
    robot = spin(Robot(context))
    robot.find_peers()
    robot.instruct()
    end_stream = robot.stream(10.0)
    assert wait_until(robot.moving)
    if code == 0:
        process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    end_stream()
    assert (process.returncode, "Traceback" in output) == (code, False), output
    assert speed_of(robot.twists[-1][2]) == 0.0
