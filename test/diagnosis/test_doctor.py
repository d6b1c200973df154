import subprocess
import sys
from pathlib import Path

from heisd_ros import cli
from heisd_ros.config import make_config
from heisd_ros.diagnosis.gather import gather_steps, gather_system
from heisd_ros.nodes.doctor import split_arguments

ROOT = Path(__file__).parents[2]


def test_missing_checkpoint_fails_and_what_depends_on_it_is_not_tried(tmp_path):
    config = make_config({"model.checkpoint": str(tmp_path / "nowhere")})
    steps = gather_steps(config, load=True)
    assert [step.failed for step in steps] == [True, False, False, False]
    assert [step.skipped for step in steps] == [False, True, True, True]
    assert "nowhere" in steps[0].text


def test_unknown_statistics_key_names_the_known_one():
    config = make_config({"model.statistics_key": "bridge"})
    step = gather_steps(config, load=False)[1]
    assert step.failed
    assert "libero_spatial" in step.text


def test_environment_is_read_and_nothing_else_of_it():
    facts = gather_system({"ROS_DOMAIN_ID": "7", "SECRET": "x"})
    assert facts.environment == {"ROS_DOMAIN_ID": "7"}
    assert not facts.profile_readable


def test_ros_arguments_are_left_to_ros():
    own, ros = split_arguments(["--no-model", "--ros-args", "-r", "a:=b"])
    assert own == ["--no-model"]
    assert ros == ["--ros-args", "-r", "a:=b"]


def test_a_wrong_parameter_file_is_a_finding_with_the_nearest_name(tmp_path, capsys):
    file = tmp_path / "robot.yaml"
    file.write_text("command: {contol_hz: 5}\n")
    assert cli.main(["doctor", "--no-ros", "--params", str(file)]) == 1
    assert "command.control_hz" in capsys.readouterr().out


def test_without_ros_it_says_what_it_could_not_check():
    code = (
        "import sys; sys.modules['rclpy'] = None\n"
        "from heisd_ros.cli import main; raise SystemExit(main(['doctor', '--no-model']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ROS graph" in done.stdout
    assert "topics and clocks were not checked" in done.stdout
