"""The demo looks before it leaps, stops what it started, and tells the last words of a failure."""

import signal
import sys
from pathlib import Path

import pytest
import yaml

from heisd_ros.config import load_config, make_config
from heisd_ros.errors import ConfigError, DataError, MissingDependencyError, ModelError, StoreError
from heisd_ros.offline import demo, demo_checks
from heisd_ros.offline.fleet import Fleet, NodeFailedError


def options(*argv):
    return demo._parser().parse_args(list(argv))


def test_the_demo_plays_the_simulated_panda_in_lockstep():
    config = demo.demo_config(options("--task", "3", "--init", "7", "--max-steps", "50"))
    assert (config.simulation.task, config.simulation.init) == (3, 7)
    assert (config.simulation.clock, config.simulation.episodes) == ("lockstep", 1)
    assert config.simulation.max_steps == 50
    assert (config.command.control_hz, config.command.translation_scale) == (20.0, 0.05)


def test_settings_win_over_the_shipped_files():
    config = demo.demo_config(
        options("--set", "trajectory.threshold=0.5", "--set", "model.threads=4")
    )
    assert (config.trajectory.threshold, config.model.threads) == (0.5, 4)
    with pytest.raises(ConfigError, match=r"did you mean 'trajectory.threshold'"):
        demo.demo_config(options("--set", "trajectory.treshold=0.5"))


def test_all_nodes_read_one_parameter_file(tmp_path):
    config = demo.demo_config(options())
    path = demo.write_parameters(config, tmp_path / "bag", tmp_path / "params.yaml")
    again = load_config(path)
    assert again.record.folder == str(tmp_path / "bag")
    assert again.record.episodes == 1
    assert again.trajectory == config.trajectory
    assert list(yaml.safe_load(path.read_text())) == ["/**"]


def test_only_the_three_nodes_live_in_simulated_time():
    simulated = {
        node: demo.node_arguments(node, Path("p"))[-1]
        for node in (*demo.LISTENERS, demo.SIMULATION)
    }
    assert [node for node, text in simulated.items() if text.endswith("true")] == [
        "perception_node",
        "trajectory_node",
        "decoder_node",
    ]


def test_a_run_speaks_only_to_itself_on_this_machine():
    environment = demo.run_environment(42)
    assert environment["ROS_DOMAIN_ID"] == "42"
    assert environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"


def test_a_folder_with_content_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "check_all", lambda *_: None)
    (tmp_path / "old").write_text("a run")
    with pytest.raises(DataError, match="is not empty"):
        demo.main(["--out", str(tmp_path)])


def test_ctrl_c_ends_the_demo_without_a_traceback(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "check_all", lambda *_: None)
    monkeypatch.setattr(demo, "play", interrupted)
    assert demo.main(["--out", str(tmp_path / "run")]) == 130
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("libero", r"pip install 'heisd_ros\[sim\]'"),
        ("rosbags", r"pip install 'heisd_ros\[bags\]'"),
        ("torch", r"torch==2\.13\.0"),
    ],
)
def test_a_missing_package_is_told_with_its_install_line(monkeypatch, module, line):
    found = demo_checks.importlib.util.find_spec
    monkeypatch.setattr(
        demo_checks.importlib.util,
        "find_spec",
        lambda name: None if name == module else found("json"),
    )
    with pytest.raises(MissingDependencyError, match=line):
        demo_checks.check_modules()


def test_a_missing_graphics_library_is_told_with_its_apt_line(monkeypatch):
    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(demo_checks.ctypes, "CDLL", no_library)
    with pytest.raises(MissingDependencyError, match="apt-get install libegl1 libegl-mesa0"):
        demo_checks.check_graphics("egl")
    demo_checks.check_graphics("glfw")


def test_missing_weights_and_demonstrations_are_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_checks, "check_modules", lambda: None)
    monkeypatch.setattr(demo_checks, "check_messages", lambda: None)
    monkeypatch.setattr(demo_checks, "check_graphics", lambda backend: None)
    config = make_config({"model.checkpoint": str(tmp_path / "none")})
    with pytest.raises(ModelError, match="no checkpoint folder"):
        demo_checks.check_all(config, ("ar",))
    config = make_config(
        {"model.checkpoint": str(tmp_path), "retrieval.store": str(tmp_path / "none")}
    )
    demo_checks.check_all(config, ("ar",))
    with pytest.raises(StoreError, match=r"no demonstration store.*--method ar"):
        demo_checks.check_all(config, ("heisd", "ar"))
    with pytest.raises(ConfigError, match="unknown method"):
        demo_checks.check_all(config, ("heis",))


SLEEPER = "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(0)); "


def test_a_fleet_is_ended_by_sigint(tmp_path):
    code = SLEEPER + "print('up', flush=True); time.sleep(600)"
    with Fleet(tmp_path) as fleet:
        fleet.start("sleeper", [sys.executable, "-c", code])
        fleet.wait_for(
            lambda: "up" in fleet.log("sleeper"), alive=["sleeper"], timeout_s=60, what="start"
        )
        process = fleet._processes["sleeper"]
    assert process.returncode == 0


def test_a_process_that_will_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("heisd_ros.offline.fleet.STOP_S", 0.2)
    code = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up', flush=True)"
    )
    with Fleet(tmp_path) as fleet:
        fleet.start("deaf", [sys.executable, "-c", code + "\nwhile True: time.sleep(1)"])
        fleet.wait_for(
            lambda: "up" in fleet.log("deaf"), alive=["deaf"], timeout_s=60, what="start"
        )
        process = fleet._processes["deaf"]
    assert process.returncode == -signal.SIGKILL


def test_the_last_words_of_a_dead_process_are_told(tmp_path):
    with Fleet(tmp_path) as fleet:
        fleet.start("short", [sys.executable, "-c", "import sys; print('no weights'); sys.exit(2)"])
        with pytest.raises(NodeFailedError, match=r"short ended with code 2(.|\n)*no weights"):
            fleet.wait_for(lambda: False, alive=["short"], timeout_s=60, what="never")


def test_waiting_has_an_end(tmp_path):
    with Fleet(tmp_path) as fleet, pytest.raises(NodeFailedError, match="rain did not happen"):
        fleet.wait_for(lambda: False, alive=[], timeout_s=0.05, what="rain")


def test_the_parser_is_the_documented_one():
    parsed = options()
    assert (parsed.method, parsed.suite, parsed.task, parsed.init) == (
        "both",
        "libero_spatial",
        0,
        0,
    )
    assert 0 <= parsed.domain_id <= 101
