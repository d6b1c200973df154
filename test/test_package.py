"""Package metadata: three build descriptions that must agree. Needs no ROS."""

import re
from xml.etree import ElementTree

import pytest

import heisd_ros
from heisd_ros.config import HeisdConfig, load_config
from heisd_ros.errors import ConfigError
from heisd_ros.nodes import describe, security_policy
from heisd_ros.share import config_file, share_dir

tomllib = pytest.importorskip("tomllib")  # Python 3.11
ROOT = share_dir()
CMAKE = (ROOT / "CMakeLists.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MANIFEST = ElementTree.parse(ROOT / "package.xml").getroot()


def test_version_is_the_same_everywhere():
    assert PROJECT["project"]["version"] == heisd_ros.__version__
    assert MANIFEST.findtext("version") == heisd_ros.__version__
    changelog = (ROOT / "CHANGELOG.rst").read_text()
    assert re.search(rf"^{re.escape(heisd_ros.__version__)}\b", changelog, re.MULTILINE)
    assert f"version: {heisd_ros.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_name_and_licence_are_the_same_everywhere():
    assert PROJECT["project"]["name"] == MANIFEST.findtext("name") == "heisd_ros"
    assert MANIFEST.findtext("license") == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]


def test_cmake_installs_the_console_scripts_of_pyproject():
    installed = dict(re.findall(r'"(\w+)=(heisd_ros[\w.]+)"', CMAKE))
    scripts = PROJECT["project"]["scripts"]
    assert {name: target.removesuffix(":main") for name, target in scripts.items()} == installed


@pytest.mark.parametrize("script", sorted(PROJECT["project"]["scripts"]))
def test_console_script_has_a_main_that_takes_arguments(script):
    module = PROJECT["project"]["scripts"][script].removesuffix(":main").replace(".", "/")
    source = (ROOT / f"{module}.py").read_text()
    assert re.search(
        r"^def main\(\w+: Sequence\[str\] \| None = None\) -> int:", source, re.MULTILINE
    )


def test_every_message_is_generated():
    listed = set(re.findall(r'"((?:msg|action)/\w+\.\w+)"', CMAKE))
    files = [*(ROOT / "msg").glob("*.msg"), *(ROOT / "action").glob("*.action")]
    assert listed == {f"{path.parent.name}/{path.name}" for path in files}


def test_every_message_field_is_commented():
    for path in [*(ROOT / "msg").glob("*.msg"), *(ROOT / "action").glob("*.action")]:
        for line in path.read_text().splitlines():
            assert line.strip() in ("", "---") or "#" in line, f"{path.name}: {line}"


def test_every_room_is_a_package_that_pip_finds():
    rooms = {path.parent for path in (ROOT / "heisd_ros").rglob("*.py")}
    assert all((room / "__init__.py").is_file() for room in rooms)


def test_no_room_has_a_name_that_belongs_to_generated_interfaces():
    assert not any((ROOT / "heisd_ros" / name).exists() for name in ("msg", "srv", "action"))


def test_ros_packages_imported_by_the_nodes_are_declared():
    declared = {item.text for item in MANIFEST if item.tag.endswith("depend")}
    sources = "\n".join(path.read_text() for path in (ROOT / "heisd_ros/nodes").glob("*.py"))
    imported = set(re.findall(r"^from (\w+)\.(?:msg|srv) import", sources, re.MULTILINE))
    assert imported - {"heisd_ros"} <= declared
    wheels = " ".join(PROJECT["project"]["optional-dependencies"]["jazzy"])
    for name in imported - {"heisd_ros", "builtin_interfaces"}:
        assert f"ros-jazzy-{name.replace('_', '-')}" in wheels


def test_build_tools_of_pyproject_and_requirements_agree():
    listed = (ROOT / "requirements-ros-jazzy.txt").read_text().splitlines()
    tools = {item for item in PROJECT["build-system"]["requires"] if item.startswith("ros-")}
    assert tools <= set(listed)
    assert set(PROJECT["project"]["optional-dependencies"]["jazzy"]) <= set(listed)


def test_default_parameter_file_is_current():
    assert (ROOT / describe.DEFAULTS).read_text() == describe.default_yaml()


def test_default_parameter_file_equals_the_defaults():
    assert load_config(config_file("heisd.yaml")) == HeisdConfig()


def test_security_policy_is_current():
    assert (ROOT / security_policy.POLICY).read_text() == security_policy.policy_xml()


def test_interface_page_is_current():
    assert (ROOT / describe.INTERFACE).read_text() == describe.interface_page(ROOT)


@pytest.mark.parametrize("name", ["libero_panda.yaml", "franka_servo.yaml"])
def test_embodiment_loads_and_changes_the_command_section(name):
    assert load_config(config_file(f"embodiments/{name}")).command != HeisdConfig().command


def test_libero_limits_let_the_largest_action_pass():
    # |(1, 1, 1)| * 0.05 m * 20 Hz = 1.7321 m/s; |(1, 1, 1)| * 0.5 rad * 20 Hz = 17.321 rad/s
    command = load_config(config_file("embodiments/libero_panda.yaml")).command
    assert command.max_linear > 1.7321
    assert command.max_angular > 17.321
    assert command.max_linear_step >= 2 * command.max_linear
    assert command.max_angular_step >= 2 * command.max_angular


def test_unknown_configuration_file_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"franka_servo\.yaml"):
        config_file("embodiments/unknown.yaml")


def test_installed_layout_is_found_from_the_module(tmp_path):
    module = tmp_path / "lib/python3.11/site-packages/heisd_ros/share.py"
    marker = tmp_path / "share/heisd_ros/config/heisd.yaml"
    for path in (module, marker):
        path.parent.mkdir(parents=True)
        path.touch()
    assert share_dir(module) == tmp_path / "share/heisd_ros"


def test_colcon_layout_of_debian_is_found_from_the_module(tmp_path):
    module = tmp_path / "local/lib/python3.12/dist-packages/heisd_ros/share.py"
    marker = tmp_path / "share/heisd_ros/config/heisd.yaml"
    for path in (module, marker):
        path.parent.mkdir(parents=True)
        path.touch()
    assert share_dir(module) == tmp_path / "share/heisd_ros"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-06, "1.0e-06"), (2.5e-07, "2.5e-07"), (True, "true"), (20.0, "20.0"), ((1.0,), "[1.0]")],
)
def test_yaml_value_is_read_back_alike_by_both_readers(value, text):
    assert describe.yaml_value(value) == text
