"""A decoder process whose demonstrations are on a server that dies and returns."""

import signal

import pytest
import yaml
from ros.robot import Robot
from ros.test_processes import START_S, end, launch  # noqa: F401
from ros_fakes import wait_until

pytest.importorskip("torch")
pytest.importorskip("qdrant_client")

from ros import stored_picture

pytestmark = [pytest.mark.torch, pytest.mark.slow]
AWAY = "store_error:StoreUnavailableError"


def reasons(robot, since):
    """(kind, reason) of the decisions after the first `since` reports."""
    return [(m.kind, m.reason) for _, _, m in robot.reports[since:] if m.decided]


@pytest.fixture
def world(tmp_path):
    """A server with the demonstration of a picture, parameters of the decoder, and the picture."""
    values, seen = stored_picture.prepare(tmp_path)
    server = stored_picture.serve(tmp_path)
    values |= {
        "retrieval.store": server.url("grpc"),
        "retrieval.timeout_s": 1.0,
        "retrieval.pause_s": 0.2,
        # A busy machine: this test is about what arrives, not when.
        "command.image_timeout_s": 10.0,
        "command.lifetime_s": 2.0,
    }
    tree = {}
    for name, value in values.items():
        section, _, field = name.partition(".")
        tree.setdefault(section, {})[field] = value
    path = tmp_path / "parameters.yaml"
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": tree}}))
    yield server, path, seen
    server.stop()


def test_decisions_go_on_without_the_server_and_draft_from_it_when_it_returns(
    context,
    spin,
    launch,  # noqa: F811
    world,
):
    server, parameters, seen = world
    process = launch("decoder_node", "--params-file", str(parameters))
    robot = Robot(context)
    robot.seen = seen
    spin(robot)
    assert wait_until(
        lambda: (
            all(p.get_subscription_count() for p in robot.inputs.values())
            and all(s.get_publisher_count() for s in robot.outputs)
        ),
        START_S,
    ), process.poll()
    robot.instruct("go")
    end_stream = robot.stream(5.0)
    try:
        assert wait_until(lambda: ("retrieval", "") in reasons(robot, 0), 60.0), reasons(robot, 0)
        server.stop()
        died = len(robot.reports)
        assert wait_until(lambda: reasons(robot, died).count(("ar", AWAY)) >= 3, 60.0)
        server.start()
        returned = len(robot.reports)
        assert wait_until(lambda: ("retrieval", "") in reasons(robot, returned), 60.0)
        assert wait_until(
            lambda: any(
                value.key == AWAY and int(value.value) >= 3
                for _, _, array in list(robot.statuses)
                for status in array.status
                for value in status.values
            ),
            30.0,
        )
    finally:
        end_stream()
    code, output = end(process, signal.SIGINT)
    assert (code, "Traceback" in output) == (0, False), output
    assert output.count("is not used") == 1, output
