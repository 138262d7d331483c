"""What a schedule policy keeps: nothing of a question, nothing of requests that ended, no table."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from jackfield.testing.conformance.policy_questions import not_overridden, overrides
from jackfield.testing.conformance.policy_rig import PolicyRig
from jackfield.testing.conformance.policy_tables import MadeTable, made_record, made_view
from jackfield.testing.conformance.snapshot import changed, module_state, same, size, snapshot


class PolicyState(PolicyRig):
    """Its state between the calls."""

    def test_questions_change_nothing(self) -> None:
        """`order`, `budget`, `take` and `victims` leave the columns, the policy's own state and its module as they were."""
        policy, waiting = self.policy(), MadeTable(60, 1)
        policy.observe(made_record(1, [1, 2, 3], admitted=(1, 2, 3)))
        module = module_state(self.loaded().module)
        for what, ask in self.questions(policy, waiting, 1).items():
            before = snapshot([policy, module]), snapshot(waiting.columns())
            ask()
            if snapshot(waiting.columns()) != before[1]:
                raise AssertionError(f"{what} changed a column of the table")
            if where := changed(before[0], snapshot([policy, module])):
                raise AssertionError(f"{what} changed the policy's own state; only observe may: {where}")

    def test_the_same_question_has_the_same_answer(self) -> None:
        """Asked twice, with other questions in between, and asked of a second instance: answers hang on the view alone."""
        policy, second = self.policy(), self.policy()
        waiting, other = MadeTable(60, 1), MadeTable(7, 2)
        first = {what: ask() for what, ask in self.questions(policy, waiting, 1).items()}
        for ask in self.questions(policy, other, 5).values():
            ask()
        for asked in (policy, second):
            for what, ask in self.questions(asked, waiting, 1).items():
                who = "again" if asked is policy else "of a second instance"
                assert same(ask(), first[what]), f"{what} answers otherwise when it is asked {who}"

    def test_keeps_no_table(self) -> None:
        """Tables, their columns and views are valid during the call: after it, the policy holds none of them."""
        policy: Any = self.make(max_running=8, page_size=1, total_slots=256)
        waiting, running = MadeTable(20, 1), MadeTable(8, 2)
        view = made_view(20, 1, forest="forest" in self.manifest().needs)
        policy.start(waiting, running, view)
        for ask in self.questions(policy, waiting, 1).values():
            ask()
        del ask
        given: list[tuple[str, Any]] = [("the view", view), ("view.running", view.running)]
        for what, table in (("waiting", waiting), ("running", running)):
            given.append((f"the table of {what} requests", table))
            given += [(f"the column {name!r} of {what} requests", column) for name, column in table.columns().items()]
        references = [(what, weakref.ref(thing)) for what, thing in given]
        del waiting, running, view, table, given
        gc.collect()
        kept = [what for what, reference in references if reference() is not None]
        assert not kept, f"the policy keeps {kept[0]}: take copies of what you need later, by uid"

    def test_forgets_requests_that_have_ended(self) -> None:
        """What `observe` keeps does not grow with the requests ever served, finished or aborted, nor with their tenants."""
        policy = self.policy()
        if not overrides(policy, "observe"):
            self.not_claimed(not_overridden(policy, "observe"))
        hint = " (StepRecord.aborted), each two of another tenant (StepRecord.open_tenants says which are left)"
        for how, more in (("finished", ""), ("aborted", hint)):
            sizes = []
            for step in range(1, 1201):
                pair = (step, step + 10**6)
                ended: dict[str, Any] = {how: pair}
                tenants = [1000 + step] * 2 if more else None
                policy.observe(made_record(2 * step, list(pair), admitted=pair, tenants=tenants))
                policy.observe(made_record(2 * step + 1, list(pair), tenants=tenants, **ended))
                if step % 400 == 0:
                    sizes.append(size(policy))
            told = f"its state has {sizes} parts after 800, 1600 and 2400 {how} requests{more}"
            assert sizes[2] <= sizes[1] + 8, told
