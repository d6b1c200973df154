"""Near-contact budgets: signs of contact, the scale by hand, and exactness at zero."""

import dataclasses
import math

import numpy as np
import pytest
from fakes import some_metric, some_request

from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import RuleSchedule
from heisd_ros.types import Draft, DraftKind
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)
from heisd_ros.verify.schedule import FixedSchedule
from heisd_ros.verify.tightening import (
    TighteningSchedule,
    TighteningSettings,
    motion_scale,
    scaled,
)

OPEN, CLOSED = 31744, 31872


def draft(*grippers):
    chains = np.array([[31800] * 6 + [g] for g in grippers]).reshape(-1, 7)
    scores = np.full(len(chains), 0.9, np.float32)
    return Draft(DraftKind.RETRIEVAL, None, scores, chains, np.zeros((len(chains), 7)))


def request(grippers, fused=0.2, z=0.3, force=None):
    past = np.array([[31800] * 6 + [g] for g in grippers]).reshape(-1, 7)
    metric = some_metric(fused)
    position = np.array([0.0, 0.0, z])
    asked = dataclasses.replace(some_request(history=past), metric=metric)
    return dataclasses.replace(asked, position=position, force=force)


def schedule(rule=None, **settings):
    inner = FixedSchedule(rule or SequenceRelaxedAcceptance(30, 15))
    return TighteningSchedule(inner, TighteningSettings(**settings))


def budgets(rule):
    return rule.sequence_budget, rule.token_budget


def test_fast_free_motion_keeps_the_whole_budgets():
    tightening = schedule()
    assert isinstance(tightening, RuleSchedule)
    assert budgets(tightening.rule(request([OPEN] * 3), draft(OPEN, OPEN))) == (30, 15)
    assert not tightening.last.contact


@pytest.mark.parametrize(
    ("fused", "expected"),
    # l_min .5, F_ref .2: F = .1 is half way, .5 + .5 * .5 = .75.
    [(0.0, 0.5), (0.1, 0.75), (0.2, 1.0), (0.9, 1.0), (math.nan, 0.5)],
)
def test_scale_rises_with_the_fused_metric_and_an_unknown_one_is_slow(fused, expected):
    assert motion_scale(fused, TighteningSettings()) == pytest.approx(expected)


def test_budgets_are_rounded_down():
    # lambda .75: 22.5 and 11.25 bins.
    assert budgets(schedule().rule(request([OPEN], fused=0.1), draft(OPEN))) == (22, 11)


@pytest.mark.parametrize(("since", "near"), [(1, True), (8, True), (9, False)])
def test_eight_steps_after_an_observed_transition_are_near(since, near):
    tightening = schedule()
    # The last action that closed was `since` steps ago: history ends with `since` closed ones.
    rule = tightening.rule(request([OPEN] * 5 + [CLOSED] * since), draft(CLOSED))
    assert tightening.last.transition is near
    assert budgets(rule) == ((9, 4) if near else (30, 15))  # .3 * 30 and .3 * 15 = 4.5


@pytest.mark.parametrize("drafted", [(CLOSED,), (OPEN, CLOSED)])
def test_a_drafted_transition_counts_and_lasts_eight_steps(drafted):
    tightening = schedule()
    tightening.rule(request([OPEN] * 5), draft(*drafted))
    assert tightening.last.transition
    tightening.rule(request([OPEN] * 13), draft(OPEN))
    assert tightening.last.transition
    tightening.rule(request([OPEN] * 14), draft(OPEN))
    assert not tightening.last.transition


def test_reset_forgets_a_predicted_transition():
    tightening = schedule()
    tightening.rule(request([OPEN]), draft(CLOSED))
    tightening.reset()
    tightening.rule(request([OPEN]), draft(OPEN))
    assert not tightening.last.contact


def test_first_step_without_history_or_draft_is_free():
    tightening = schedule()
    tightening.rule(request([]), draft())
    assert tightening.last.scale == 1.0


@pytest.mark.parametrize(
    ("newtons", "touching", "expected"),
    [
        (4.9, False, (30, 15)),
        (5.0, False, (30, 15)),
        (5.1, True, (9, 4)),  # floor(.3 * 30), floor(.3 * 15)
        (math.nan, True, (9, 4)),
        (None, True, (9, 4)),
    ],
)
def test_force_above_the_limit_is_contact_and_so_is_a_lost_sensor(newtons, touching, expected):
    tightening = schedule(max_force=5.0)
    rule = tightening.rule(request([OPEN], force=newtons), draft(OPEN))
    assert tightening.last.touching is touching
    assert budgets(rule) == expected


@pytest.mark.parametrize("newtons", [None, 1000.0])
def test_without_a_limit_no_force_is_looked_at(newtons):
    tightening = schedule()
    rule = tightening.rule(request([OPEN], force=newtons), draft(OPEN))
    assert not tightening.last.touching
    assert budgets(rule) == (30, 15)


def test_a_low_end_effector_is_contact():
    tightening = schedule(min_height=0.05)
    tightening.rule(request([OPEN], z=0.04), draft(OPEN))
    assert tightening.last.low
    tightening.rule(request([OPEN], z=0.06), draft(OPEN))
    assert not tightening.last.low


def test_contact_scale_zero_makes_the_step_exact():
    rule = schedule(contact_scale=0.0).rule(request([OPEN]), draft(CLOSED))
    assert rule == ExactAcceptance()


@pytest.mark.parametrize("strict", [False, True])
def test_zero_scale_accepts_what_exact_acceptance_accepts(strict):
    rng = np.random.default_rng(0)
    rule = scaled(SequenceRelaxedAcceptance(45, 25, strict=strict), 0.0)
    for _ in range(100):
        chains = 31800 + rng.integers(0, 3, (4, 7))
        tree = DraftTree.from_chains(chains)
        answers = 31800 + rng.integers(0, 3, 1 + len(tree))
        expected = ExactAcceptance().accept(tree, answers)
        got = rule.accept(tree, answers)
        assert got.tokens.tolist() == expected.tokens.tolist()
        assert got.path.tolist() == expected.path.tolist()


def test_tighter_budgets_never_accept_more():
    rng = np.random.default_rng(1)
    whole = SequenceRelaxedAcceptance(30, 15)
    for _ in range(200):
        tree = DraftTree.from_chains(31800 + rng.integers(0, 20, (3, 7)))
        answers = 31800 + rng.integers(0, 20, 1 + len(tree))
        lengths = [scaled(whole, s).accept(tree, answers).accept_length for s in (0.0, 0.3, 1.0)]
        assert lengths == sorted(lengths)


def test_token_budgets_scale_alike_and_exact_stays_exact():
    assert scaled(TokenRelaxedAcceptance(9), 0.5) == TokenRelaxedAcceptance(4)
    assert scaled(TokenRelaxedAcceptance(9), 0.1) == ExactAcceptance()
    assert scaled(ExactAcceptance(), 0.5) == ExactAcceptance()


@pytest.mark.parametrize(
    "wrong", [{"min_scale": -0.1}, {"contact_scale": 1.1}, {"reference": 0}, {"contact_steps": -1}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError):
        TighteningSettings(**wrong)
