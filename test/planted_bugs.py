"""Plants one bug at a time in a copy of the package and asks the tests that should notice.

`python test/planted_bugs.py` runs the whole list; `--core` the part that CI runs.
A bug that no test notices is a hole in the tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import hypothesis  # noqa: F401  (inherited by every child)
import numpy  # noqa: F401
import pytest

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 240
FAILED = 1
"""Exit code of pytest when tests ran and some failed."""

DECODER = "test/decode/test_decoder.py::test_exact_acceptance_decodes_the_tokens_of_autoregression"
ACCEPT = "test/verify/test_acceptance.py::"
TREE = "test/draft/test_tree.py::"
SKIP = "test/verify/test_verify_skip.py::"
LEARN = "test/verify/test_skip_thresholds.py::"
SELECT = "test/decode/test_selector.py::"


@dataclass(frozen=True)
class Bug:
    """One planted bug: in `file`, `right` (found once) becomes `wrong`; `test` must fail."""

    name: str
    file: str
    right: str
    wrong: str
    test: str
    core: bool = False


BUGS = (
    Bug(
        "sum below the budget instead of within it",
        "verify/acceptance.py",
        "total <= self.sequence_budget and largest <=",
        "total < self.sequence_budget and largest <=",
        ACCEPT + "test_budgets_are_inclusive_and_strict_ones_are_not",
        core=True,
    ),
    Bug(
        "token below the budget instead of within it",
        "verify/acceptance.py",
        "largest <= self.token_budget",
        "largest < self.token_budget",
        ACCEPT + "test_worked_table",
    ),
    Bug(
        "bias of a sequence is a mean",
        "verify/bias.py",
        "int(np.sum(bias))",
        "int(np.mean(bias))",
        ACCEPT + "test_bias_of_a_sequence_is_a_sum_not_a_mean",
        core=True,
    ),
    Bug(
        "every candidate judged under the first one's prefix",
        "verify/bias.py",
        "[1 + np.asarray(tree.parent)]",
        "[np.asarray(tree.depth)]",
        ACCEPT + "test_a_candidate_is_judged_under_its_own_prefix",
        core=True,
    ),
    Bug(
        "answer of the node above in the exact walk",
        "verify/acceptance.py",
        "wanted = int(target_next[1 + node])",
        "wanted = int(target_next[node])",
        DECODER,
        core=True,
    ),
    Bug(
        "free token of the node above",
        "verify/acceptance.py",
        "np.append(tokens, target_next[1 + last])",
        "np.append(tokens, target_next[last])",
        DECODER,
    ),
    Bug(
        "gripper relaxed like any token",
        "verify/acceptance.py",
        "offset >= _GRIPPER, 0, self.tolerance)",
        "offset > _GRIPPER, 0, self.tolerance)",
        ACCEPT + "test_gripper_token_is_never_relaxed",
        core=True,
    ),
    Bug(
        "a good token below a bad one counts",
        "verify/acceptance.py",
        "bias[node] <= limit[node] and (above == ROOT or alive[above])",
        "bias[node] <= limit[node]",
        ACCEPT + "test_zero_tolerance_is_exact",
    ),
    Bug(
        "wrong parent in the tree",
        "draft/tree.py",
        "parents.append(node)",
        "parents.append(max(node - 1, ROOT))",
        TREE + "test_worked_trie_has_the_specified_nodes",
        core=True,
    ),
    Bug(
        "a node sees its parent but no other ancestor",
        "draft/tree.py",
        "mask[node] |= mask[above]",
        "mask[node, above] = True",
        TREE + "test_worked_trie_has_the_specified_mask_and_leaves",
    ),
    Bug(
        "siblings at different positions",
        "draft/tree.py",
        "return prefix_length + self.depth",
        "return prefix_length + np.arange(len(self))",
        TREE + "test_siblings_share_a_position",
    ),
    Bug(
        "drafter keeps the worst nodes",
        "draft/drafter.py",
        'np.argsort(-pool.score, kind="stable")',
        'np.argsort(pool.score, kind="stable")',
        "test/draft/test_drafter.py::test_every_kept_node_has_its_parent_and_scores_never_rise",
    ),
    Bug(
        "wrong K/V rows kept",
        "models/kv_cache.py",
        "buffer.index_select(2, rows)",
        "buffer.index_select(2, rows - 1)",
        "test/models/test_tree_attention.py::"
        "test_kept_rows_move_to_the_front_even_when_they_overlap",
        core=True,
    ),
    Bug(
        "known answer of the node above after an accept",
        "models/tree_decoder.py",
        "pending.answer.row(int(nodes[-1]) + 1)",
        "pending.answer.row(int(nodes[-1]))",
        "test/models/test_openvla.py::"
        "test_row_zero_of_verify_is_the_answer_after_the_accepted_path",
    ),
    Bug(
        "hysteresis on the wrong side",
        "decode/selector.py",
        "self._leave if self._mode is DraftKind.RETRIEVAL",
        "self._leave if self._mode is not DraftKind.RETRIEVAL",
        SELECT + "test_hysteresis_keeps_retrieval_until_the_lower_threshold",
        core=True,
    ),
    Bug(
        "boundary not strict",
        "decode/selector.py",
        "metric.fused > boundary",
        "metric.fused >= boundary",
        SELECT + "test_fast_and_straight_motion_retrieves_and_the_threshold_is_strict",
    ),
    Bug(
        "skips far from the last verified point",
        "verify/verify_skip.py",
        "<= known.max_distance",
        ">= known.max_distance",
        SKIP + "test_skips_near_the_last_verified_point",
        core=True,
    ),
    Bug(
        "one neighbour's gripper is enough for a skip",
        "verify/verify_skip.py",
        "return all(state_of_token",
        "return any(state_of_token",
        SKIP + "test_disagreeing_grippers_are_never_skipped",
    ),
    Bug(
        "skips without end",
        "verify/verify_skip.py",
        "allowed=self._row < settings.max_consecutive",
        "allowed=self._row >= 0",
        SKIP + "test_at_most_so_many_in_a_row_and_again_after_a_verification",
    ),
    Bug(
        "audited steps teach like skipped ones",
        "verify/verify_skip.py",
        "self._waved_through = None  # an audit",
        "pass  # an audit",
        "test/verify/test_audit.py::test_an_episode_whose_skips_were_all_audited_teaches_nothing",
    ),
    Bug(
        "look-ahead follows neighbours that were not drafted",
        "draft/retrieval.py",
        "self.last_hits = kept =",
        "self.last_hits = hits; kept =",
        "test/draft/test_retrieval.py::test_only_neighbours_that_were_drafted_are_remembered",
    ),
    Bug(
        "schedule hears of the first verification only",
        "decode/decoder.py",
        "            self._schedule.observe(last)\n",
        "",
        "test/decode/test_decoder.py::"
        "test_the_schedule_hears_of_every_verification_and_the_source_of_its_own",
    ),
    Bug(
        "success narrows",
        "verify/skip_thresholds.py",
        "self.min_similarity - s.similarity_step",
        "self.min_similarity + s.similarity_step",
        LEARN + "test_success_widens_and_failure_narrows_four_times_as_much",
    ),
    Bug(
        "most similar instead of least similar pair",
        "verify/skip_thresholds.py",
        "usable[np.argmin(s[usable])]",
        "usable[np.argmax(s[usable])]",
        LEARN + "test_paper_stage_takes_the_least_similar_acceptable_pair",
    ),
)


class Workshop:
    """A copy of package and tests in which bugs are planted one after the other."""

    def __init__(self, folder: Path) -> None:
        """Copy what the tests need to a folder, new or empty."""
        self.folder = folder
        for name in ("heisd_ros", "test", "config"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
            )
        for name in ("pyproject.toml", "package.xml"):
            shutil.copy(ROOT / name, folder / name)

    def result_of(self, *tests: str) -> int:
        """Run tests of the copy in a forked child and return pytest's exit code.

        The child inherits what is slow to import and the same for all, and nothing of the package.
        """
        child = os.fork()
        if not child:
            self._run(tests)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    def _run(self, tests: tuple[str, ...]) -> NoReturn:
        signal.alarm(TIMEOUT_S)  # a bug may loop for ever
        # A planted bug must not be read from, nor leave, compiled files.
        sys.dont_write_bytecode = True
        os.chdir(self.folder)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))

    def notices(self, bug: Bug) -> bool:
        """Plant a bug, run its test, take the bug out again.

        Raises:
            ValueError: If the right text is not found exactly once.
        """
        path = self.folder / "heisd_ros" / bug.file
        source = path.read_text(encoding="utf-8")
        if source.count(bug.right) != 1:
            raise ValueError(f"{bug.file} has {source.count(bug.right)} times {bug.right!r}")
        path.write_text(source.replace(bug.right, bug.wrong), encoding="utf-8")
        try:
            return self.result_of(bug.test) == FAILED
        finally:
            path.write_text(source, encoding="utf-8")


def main(argv: list[str]) -> int:
    """Plant the list, or with `--core` its core, and say which bugs went unnoticed."""
    bugs = [bug for bug in BUGS if bug.core] if "--core" in argv else BUGS
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        if workshop.result_of(*dict.fromkeys(bug.test for bug in bugs)):
            sys.stdout.write("the tests fail without any bug\n")
            return 2
        missed = 0
        for bug in bugs:
            noticed = workshop.notices(bug)
            missed += not noticed
            sys.stdout.write(f"{'noticed' if noticed else 'MISSED '}  {bug.name}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(bugs) - missed} of {len(bugs)} bugs noticed\n")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
