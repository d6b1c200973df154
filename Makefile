# make setup [ROS_DISTRO=kilted] [VENV=.venv] [PYTHON=python3] | make test | make lint | make demo
ROS_DISTRO ?= jazzy
VENV ?= .venv
PYTHON ?= python3
EXTRAS ?= all,test
# Pinned, so that pip does not pick a release that nobody here has run.
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin
# Nodes of the tests talk on this machine only.
ROS_ENV := ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST

SOURCES := $(shell find heisd_ros msg action launch config weights -type f ! -name '*.pyc' 2>/dev/null)
INSTALLED := $(VENV)/.installed-$(ROS_DISTRO)

.PHONY: setup interfaces test coverage lint demo

setup: $(INSTALLED)

# Again whenever a source changes: the console scripts run the installed copy.
$(INSTALLED): $(SOURCES) CMakeLists.txt package.xml setup.py pyproject.toml requirements-ros-$(ROS_DISTRO).txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifeq ($(ROS_DISTRO),jazzy)
	$(BIN)/pip install '.[jazzy,$(EXTRAS)]' $(TORCH)
else
	$(BIN)/pip install -r requirements-ros-$(ROS_DISTRO).txt
	$(BIN)/pip install --no-build-isolation '.[$(EXTRAS)]' $(TORCH)
endif
	touch $@

# control_msgs and moveit_msgs, which pip does not have, for the tests that need them.
interfaces: setup
	$(BIN)/python test/interfaces/build.py

test: setup
	$(ROS_ENV) $(BIN)/python -m pytest

# What decides whether the arm moves: every branch is taken by its own tests, or this fails.
coverage: setup
	$(BIN)/python -m pytest test/command -q --cov=heisd_ros/command --cov-branch \
	  --cov-config=test/command/coverage.ini --cov-report=term-missing

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# From nothing: environment, package, then a simulated arm and the report of its run.
demo: setup
	$(BIN)/heisd demo $(DEMO)
