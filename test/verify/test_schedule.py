"""One rule per kind of draft."""

import numpy as np
from fakes import some_request

from heisd_ros.types import Draft, DraftKind
from heisd_ros.verify.acceptance import ExactAcceptance, TokenRelaxedAcceptance
from heisd_ros.verify.schedule import FixedSchedule, KindSchedule


class Recording:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def rule(self, request, draft):
        return ExactAcceptance()

    def observe(self, verified):
        self.log.append((self.name, "observe"))

    def reset(self):
        self.log.append((self.name, "reset"))


def draft(kind):
    nothing = np.zeros((0, 7))
    return Draft(kind, None, np.zeros(0, np.float32), nothing.astype(np.int64), nothing)


def test_each_kind_gets_its_own_rule():
    relaxed, exact = TokenRelaxedAcceptance(9), ExactAcceptance()
    schedule = KindSchedule({DraftKind.DRAFTER: FixedSchedule(relaxed)}, FixedSchedule(exact))
    assert schedule.rule(some_request(), draft(DraftKind.DRAFTER)) is relaxed
    assert schedule.rule(some_request(), draft(DraftKind.RETRIEVAL)) is exact
    assert schedule.rule(some_request(), draft(DraftKind.KINEMATIC)) is exact


def test_a_verification_is_told_to_the_schedule_that_ruled_it_and_a_reset_to_all():
    log = []
    schedule = KindSchedule({DraftKind.DRAFTER: Recording(log, "drafter")}, Recording(log, "other"))
    schedule.rule(some_request(), draft(DraftKind.DRAFTER))
    schedule.observe(None)
    schedule.rule(some_request(), draft(DraftKind.RETRIEVAL))
    schedule.observe(None)
    schedule.reset()
    assert log == [
        ("drafter", "observe"),
        ("other", "observe"),
        ("drafter", "reset"),
        ("other", "reset"),
    ]
