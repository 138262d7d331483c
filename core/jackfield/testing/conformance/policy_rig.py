"""How the suite of schedule policies makes a policy, the tables for it and a scheduler round it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jackfield.hookspecs import SchedulePolicy, SchedulerView
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.testing.conformance.policy_questions import questions
from jackfield.testing.conformance.policy_tables import MadeTable, made_view
from jackfield.testing.conformance.suite import Conformance
from jackfield.testing.scheduler_harness import SchedulerHarness


class PolicyRig(Conformance):
    kind = "schedule_policy"

    def policy(self) -> SchedulePolicy:
        """A new one, started on empty tables."""
        made: SchedulePolicy = self.make(max_running=8, page_size=1, total_slots=256)
        made.start(MadeTable(0, 0), MadeTable(0, 0), made_view(0, 0))
        return made

    def view(self, waiting: MadeTable, seed: int, **fields: Any) -> SchedulerView:
        """As the core gives it to `order` and `take`: with a forest only where the manifest needs one."""
        return made_view(len(waiting), seed, forest="forest" in self.manifest().needs, **fields)

    def harness(self, policy: SchedulePolicy | None = None, **config: Any) -> SchedulerHarness:
        """A whole scheduler, in which any fault of the policy is an error."""
        return SchedulerHarness(
            policy=policy or self.policy(),
            policy_needs=frozenset(self.manifest().needs),
            ledger=FaultLedger("raise"),
            **config,
        )

    def questions(self, policy: SchedulePolicy, waiting: MadeTable, seed: int) -> dict[str, Callable[[], Any]]:
        """Every question that changes nothing, about these requests, as a call without arguments."""
        return questions(policy, waiting, self.view(waiting, seed), seed)
