"""Verify-skip outlives its process; `build_skip` gives the rule of the configuration."""

import dataclasses

import numpy as np
import pytest
from fakes import some_request

from heisd_ros.build import build_skip
from heisd_ros.config import SkipConfig
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.types import Acceptance, Draft, DraftKind, Verification, Verified
from heisd_ros.verify.skip import FixedSkip
from heisd_ros.verify.skip_table import SkipCalibration, SkipState, SkipTable
from heisd_ros.verify.skip_thresholds import SkipThresholds
from heisd_ros.verify.verify_skip import ScheduledSkip

OPEN = 31744
CHAIN = [31800] * 6
CHAINS = np.array([[*CHAIN, OPEN]])
TREE = DraftTree.chain(CHAIN)
DRAFT = Draft(DraftKind.RETRIEVAL, TREE, np.array([0.95], np.float32), CHAINS, np.zeros((1, 7)))
REQUEST = dataclasses.replace(some_request("bowl", CHAINS), position=np.zeros(3))
ANSWER = np.array([*CHAIN, OPEN])
VERIFIED = Verified(
    TREE, Verification(ANSWER), Acceptance(ANSWER, 7, np.arange(6), None, np.zeros(6, int))
)


@pytest.fixture
def config(tmp_path):
    tables = {
        "paper": SkipTable(SkipThresholds(0.94, 0.021)),
        "calibrated": SkipTable(SkipThresholds(0.97, 0.012)),
    }
    SkipCalibration("spatial", tables).save(tmp_path / "skip.json")
    return SkipConfig(
        rule="adaptive", thresholds=str(tmp_path / "skip.json"), state=str(tmp_path / "state.json")
    )


def one_task(rule, success):
    """Verify a step, then ask for a skip, then end the task."""
    rule.observe(DRAFT, REQUEST, VERIFIED)
    skipped = rule.should_skip(DRAFT, REQUEST)
    rule.end_episode(success)
    return skipped


def test_rules_by_name(config):
    assert build_skip(SkipConfig()) == FixedSkip(False)
    assert build_skip(SkipConfig(rule="always")) == FixedSkip(True)
    assert isinstance(build_skip(SkipConfig(rule="schedule")), ScheduledSkip)
    assert build_skip(config).state.table.of("bowl").max_distance == 0.012
    paper = dataclasses.replace(config, learned="paper")
    assert build_skip(paper).state.table.of("bowl").max_distance == 0.021


def test_the_shipped_thresholds_are_found_by_suite():
    rule = build_skip(SkipConfig(rule="adaptive", learned="paper"), suite="libero_spatial")
    assert 0.0 < rule.state.table.default.max_distance < 0.1
    with pytest.raises(ConfigError, match="libero_spatial_skip"):
        build_skip(SkipConfig(rule="adaptive"), suite="libero_moon")


def test_what_a_task_taught_is_there_after_a_restart(config):
    assert one_task(build_skip(config), success=False)
    again = build_skip(config)
    assert again.state.table.of("bowl").max_distance == pytest.approx(0.012 / 1.2)
    assert again.state.table.of("bowl").min_similarity == pytest.approx(0.99)
    one_task(again, success=True)
    assert build_skip(config).state.table.of("bowl").max_distance == pytest.approx(
        0.012 / 1.2 * 1.05
    )


def test_a_task_without_a_skip_writes_nothing(config, tmp_path):
    rule = build_skip(config)
    rule.observe(DRAFT, REQUEST, VERIFIED)
    rule.end_episode(True)
    assert not (tmp_path / "state.json").exists()


def test_a_reset_without_an_outcome_teaches_nothing(config, tmp_path):
    rule = build_skip(config)
    rule.observe(DRAFT, REQUEST, VERIFIED)
    assert rule.should_skip(DRAFT, REQUEST)
    rule.reset()
    rule.end_episode(False)
    assert rule.state.table.of("bowl").max_distance == 0.012


def test_a_damaged_state_is_an_error_unless_a_fresh_start_is_asked(config, tmp_path):
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(DataError, match="state_fresh"):
        build_skip(config)
    fresh = build_skip(dataclasses.replace(config, state_fresh=True))
    one_task(fresh, success=True)
    restored = SkipState.load(tmp_path / "state.json", fresh.state.origin)
    assert restored.table.of("bowl").max_distance == pytest.approx(0.012 * 1.05)


def test_the_state_of_other_thresholds_is_an_error(config):
    one_task(build_skip(config), success=True)
    with pytest.raises(DataError, match="another skip calibration"):
        build_skip(dataclasses.replace(config, learned="paper"))


def test_without_a_file_nothing_is_kept(config, tmp_path):
    assert one_task(build_skip(dataclasses.replace(config, state="")), success=True)
    assert not (tmp_path / "state.json").exists()


def test_audits_are_kept_and_open_the_way_to_skips(config):
    # A failure rate below 60 % at 95 %: 1 - 0.05^(1/n) < 0.6 needs n = 4 clean audits.
    audited = dataclasses.replace(config, rule="audited", audit_rate=0.001, max_share=0.6)
    for audits in range(4):
        rule = build_skip(audited)
        assert rule.state.audits.audits == audits
        rule.observe(DRAFT, REQUEST, VERIFIED)
        assert not rule.should_skip(DRAFT, REQUEST)  # verified after all: an audit
        rule.observe(DRAFT, REQUEST, VERIFIED)
        rule.end_episode(True)
    assert one_task(build_skip(audited), success=True)
