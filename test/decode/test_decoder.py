"""The decode loop: exact acceptance is autoregression, and never costs more forwards."""

import itertools

import numpy as np
import pytest
from fakes import FIRST_ID, HashTarget, some_metric, some_request

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.decode.decoder import HybridDecoder, StepRequest
from heisd_ros.decode.selector import FixedSelector
from heisd_ros.draft.continuation import AutoregressiveContinuation, JacobiContinuation
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ModelError
from heisd_ros.types import Acceptance, Draft, DraftKind
from heisd_ros.verify.acceptance import ExactAcceptance, SequenceRelaxedAcceptance
from heisd_ros.verify.schedule import FixedSchedule
from heisd_ros.verify.skip import FixedSkip
from heisd_ros.verify.verify_skip import ScheduledSkip

STATISTICS = ActionStatistics.from_dict(
    {"q01": [-1.0] * 7, "q99": [1.0] * 7, "mask": [True] * 6 + [False]}
)

NEVER = FixedSkip(False)


class ChainSource:
    """Drafts the chains it was given; remembers what became of them."""

    def __init__(self, chains):
        self.chains, self.seen = np.asarray(chains), []
        self.tree = DraftTree.from_chains(self.chains) if len(self.chains) else None

    def draft(self, request):
        tree = self.tree
        scores = np.linspace(0.9, 0.5, len(self.chains)).astype(np.float32)
        actions = np.zeros((len(self.chains), 7))
        return Draft(
            DraftKind.RETRIEVAL, tree, scores, self.chains, actions, "" if tree else "none"
        )

    def observe(self, acceptance):
        self.seen.append(acceptance.accept_length)

    def reset(self):
        self.seen.clear()


def decoder(target, chains, *, kind=DraftKind.RETRIEVAL, rule=None, skip=NEVER, continuations=None):
    ticks = itertools.count()
    return HybridDecoder(
        target,
        ActionTokenizer(),
        STATISTICS,
        selector=FixedSelector(kind),
        sources={DraftKind.RETRIEVAL: ChainSource(chains)},
        schedule=FixedSchedule(rule or ExactAcceptance()),
        continuations=continuations or {},
        skip=skip,
        clock=lambda: next(ticks) * 1e-3,
    )


REQUEST = StepRequest(some_request(), np.array([1]))


def noisy_chains(rng, greedy, k):
    chains = rng.integers(31744, 32000, (k, 7))
    same = rng.random((k, 7)) < rng.random()
    return np.where(same, greedy, chains)


def test_exact_acceptance_decodes_the_tokens_of_autoregression():
    """The theorem of speculative decoding, on 2,000 random models and trees."""
    rng = np.random.default_rng(0)
    for seed in range(2000):
        target = HashTarget(seed)
        chains = noisy_chains(rng, target.greedy(), int(rng.integers(1, 6)))
        result = decoder(target, chains).step(REQUEST)
        assert result.action.tokens.tolist() == target.greedy().tolist()
        assert result.report.forwards == target.forwards <= 7


@pytest.mark.parametrize("branches", [1, 4])
def test_jacobi_continuation_is_lossless_too_and_never_slower_than_autoregression(branches):
    rng = np.random.default_rng(1)
    total = 0
    for seed in range(1000):
        target = HashTarget(seed)
        chains = noisy_chains(rng, target.greedy(), int(rng.integers(1, 4)))
        continuations = {DraftKind.RETRIEVAL: JacobiContinuation(branches)}
        result = decoder(target, chains, continuations=continuations).step(REQUEST)
        assert result.action.tokens.tolist() == target.greedy().tolist()
        assert result.report.forwards == target.forwards <= 7
        total += target.forwards
    assert total < 7000


def random_tree(rng, target):
    """A tree of any shape, down to the gripper, whose tokens the target may well say."""
    parent, depth = [], []
    for node in range(int(rng.integers(1, 40))):
        above = int(rng.integers(-1, node)) if node else -1
        if above >= 0 and depth[above] == 6:
            above = -1
        parent.append(above)
        depth.append(0 if above < 0 else depth[above] + 1)
    return DraftTree(FIRST_ID + rng.integers(0, target.spread, len(parent)), np.array(parent))


@pytest.mark.parametrize("finish", [AutoregressiveContinuation, JacobiContinuation])
def test_trees_of_any_shape_are_lossless_too(finish):
    rng = np.random.default_rng(2)
    saved = 0
    for seed in range(500):
        target = HashTarget(seed, spread=3)
        tree = random_tree(rng, target)
        step = decoder(target, target.greedy()[None], continuations={DraftKind.RETRIEVAL: finish()})
        step._sources[DraftKind.RETRIEVAL].tree = tree
        result = step.step(REQUEST)
        assert result.action.tokens.tolist() == target.greedy().tolist()
        assert result.report.forwards == target.forwards <= 7
        saved += 7 - target.forwards
    assert saved > 500


class Failing(HashTarget):
    """Runs out of memory in one of its forwards."""

    fails_at = 0

    def _run(self, tree):
        if self.forwards + 1 == self.fails_at:
            raise RuntimeError("out of memory")
        return super()._run(tree)


@pytest.mark.parametrize("finish", [AutoregressiveContinuation, JacobiContinuation])
@pytest.mark.parametrize("fails_at", range(1, 5))
def test_a_step_that_failed_half_way_leaves_no_trace_in_the_next_one(fails_at, finish):
    for seed in range(20):
        undisturbed, target = HashTarget(seed), Failing(seed)
        chains = noisy_chains(np.random.default_rng(seed), target.greedy(), 2)
        chains[:, 2] = np.where(target.greedy()[2] == 31800, 31801, 31800)  # never all accepted
        steps = [
            decoder(t, chains, continuations={DraftKind.RETRIEVAL: finish()})
            for t in (undisturbed, target)
        ]
        expected = steps[0].step(REQUEST)
        target.fails_at = min(fails_at, expected.report.forwards)
        with pytest.raises(RuntimeError, match="out of memory"):
            steps[1].step(REQUEST)
        target.fails_at = 0
        result = steps[1].step(REQUEST)
        assert result.action.tokens.tolist() == expected.action.tokens.tolist()
        assert result.report.forwards == expected.report.forwards


class Told:
    """Stands for any part; writes down the calls that only change its state."""

    def __init__(self, part, calls):
        self._part, self._calls = part, calls

    def __getattr__(self, name):
        if name in ("reset", "end_episode"):
            return lambda *arguments: self._calls.append(
                (type(self._part).__name__, name, *arguments)
            )
        return getattr(self._part, name)


def test_the_end_of_an_episode_reaches_every_part_that_keeps_state():
    calls, target = [], HashTarget(1)
    parts = {
        "selector": Told(FixedSelector(DraftKind.RETRIEVAL), calls),
        "sources": {DraftKind.RETRIEVAL: Told(ChainSource([]), calls)},
        "schedule": Told(FixedSchedule(ExactAcceptance()), calls),
        "skip": Told(NEVER, calls),
    }
    told = HybridDecoder(
        Told(target, calls),
        ActionTokenizer(),
        STATISTICS,
        continuations={},
        clock=lambda: 0.0,
        **parts,
    )
    told.step(REQUEST)
    assert calls == []
    told.reset()
    names = ["HashTarget", "FixedSelector", "FixedSchedule", "FixedSkip", "ChainSource"]
    assert sorted(calls) == sorted((name, "reset") for name in names)
    calls.clear()
    told.end_episode(False)
    assert calls == [("FixedSkip", "end_episode", False)]


def test_autoregression_takes_seven_forwards():
    target = HashTarget(3)
    result = decoder(target, [], kind=DraftKind.AR).step(REQUEST)
    assert result.report.forwards == target.forwards == 7
    assert result.report.accept_length == 1
    assert result.report.kind is DraftKind.AR


@pytest.mark.parametrize(("good", "forwards"), [(6, 1), (5, 2), (3, 4), (0, 7)])
def test_every_accepted_token_saves_one_forward(good, forwards):
    target = HashTarget(5)
    chain = target.greedy()
    chain[good:] = np.where(chain[good:] == 31744, 31745, 31744)
    result = decoder(target, [chain]).step(REQUEST)
    assert result.report.forwards == forwards
    assert result.report.accept_length == good + 1
    assert result.action.tokens.tolist() == target.greedy().tolist()


def test_relaxed_acceptance_executes_the_draft_it_accepted():
    target = HashTarget(7)
    chain = np.clip(target.greedy() + 1, 31744, 31999)
    result = decoder(target, [chain], rule=SequenceRelaxedAcceptance()).step(REQUEST)
    # Under the draft's own prefix the hash answers differently, so only the first token is within
    # reach by construction; what counts is that the result obeys its own conditional answers.
    tokens = result.action.tokens.tolist()
    for dof in range(7):
        wanted = target.next_token(tokens[:dof])
        assert abs(tokens[dof] - wanted) <= (15 if dof < 6 else 0)


def test_without_a_draft_the_step_is_autoregressive_and_says_why():
    result = decoder(HashTarget(1), []).step(REQUEST)
    assert result.report.kind is DraftKind.AR
    assert result.report.reason == "none"


def test_a_mode_without_a_source_is_autoregressive_and_says_so():
    result = decoder(HashTarget(1), [], kind=DraftKind.DRAFTER).step(REQUEST)
    assert (result.report.kind, result.report.reason) == (DraftKind.AR, "no_drafter")


def test_a_skipped_step_runs_no_forward_and_executes_the_best_draft():
    target = HashTarget(2)
    chains = [np.arange(31744, 31751), np.arange(31800, 31807)]
    result = decoder(target, chains, skip=FixedSkip(True)).step(REQUEST)
    assert target.forwards == 0
    assert result.report.skipped
    assert result.action.tokens.tolist() == chains[0].tolist()


def test_a_verified_step_tells_what_spoke_against_a_skip():
    loop = decoder(HashTarget(2), [np.arange(31744, 31751)], skip=ScheduledSkip(1))
    reports = [loop.step(REQUEST).report for _ in range(3)]
    assert [report.skipped for report in reports] == [True, False, True]
    assert [report.vetoes for report in reports] == [(), ("allowed",), ()]


@pytest.mark.parametrize("skipped", [False, True])
def test_the_report_tells_what_was_retrieved(skipped):
    chains = [np.arange(31744, 31751), np.arange(31750, 31757)]
    report = decoder(HashTarget(2), chains, skip=FixedSkip(skipped)).step(REQUEST).report
    assert report.skipped is skipped
    assert report.scores == pytest.approx((0.9, 0.5))
    assert report.top_score == report.scores[0]
    assert report.spread == 9.0  # three tokens, each 6 bins apart
    assert report.gripper_consensus == 1.0


def test_the_report_of_a_step_without_neighbours_says_unknown():
    report = decoder(HashTarget(1), []).step(REQUEST).report
    assert report.scores == ()
    assert np.isnan([report.top_score, report.spread, report.gripper_consensus]).all()


def test_a_token_outside_the_action_ids_is_refused_not_clipped():
    class Talker(HashTarget):
        def next_token(self, tokens):
            return 29871

    with pytest.raises(ModelError, match="no actions"):
        decoder(Talker(0), [], kind=DraftKind.AR).step(REQUEST)


def test_stage_times_are_measured_by_the_injected_clock():
    stages = decoder(HashTarget(1), []).step(REQUEST).report.stage_ms
    # Every reading of the clock is one tick of 1 ms: draft, prefill, decode one tick each, total 4.
    assert stages == pytest.approx({"draft": 1.0, "prefill": 1.0, "decode": 1.0, "total": 4.0})


def test_action_values_are_denormalised_tokens():
    target = HashTarget(11)
    result = decoder(target, [], kind=DraftKind.AR).step(REQUEST)
    expected = ActionTokenizer().decode(target.greedy())
    assert result.action.values == pytest.approx(expected)
    assert some_metric().samples == 15


class Listening(FixedSchedule):
    def __init__(self):
        super().__init__(ExactAcceptance())
        object.__setattr__(self, "heard", [])

    def observe(self, verified):
        self.heard.append((len(verified.tree), verified.known, verified.accepted.accept_length))


def test_the_schedule_hears_of_every_verification_and_the_source_of_its_own():
    target = HashTarget(5)
    chain = target.greedy()
    chain[4:] = np.where(chain[4:] == 31744, 31745, 31744)
    step, schedule = decoder(target, [chain]), Listening()
    step._schedule = schedule
    assert step.step(REQUEST).report.forwards == 3
    # Six drafts, four right: five tokens; then one token per forward, each behind a known one.
    assert schedule.heard == [(6, 0, 5), (1, 1, 2), (1, 1, 2)]
    assert step._sources[DraftKind.RETRIEVAL].seen == [5]


class RefusingAcceptance:
    """Takes nothing, not even what the target itself has decided."""

    def accept(self, tree, target_next, *, offset=0):
        none = np.zeros(0, dtype=np.int64)
        return Acceptance(target_next[:1], 1, none, None, none)


def test_a_rule_that_refuses_the_targets_own_token_is_an_error_not_an_endless_step():
    with pytest.raises(ModelError, match="refuses the target's own token"):
        decoder(HashTarget(5), [], rule=RefusingAcceptance()).step(REQUEST)
