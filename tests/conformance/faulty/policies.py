"""Schedule policies with one fault each. CAUGHT: fault -> the check that finds it, then those that stumble over it as well."""

from __future__ import annotations

import math
import random
import threading
from time import monotonic
from typing import Any

import numpy as np

from jackfield.hookspecs import HOLD, SchedulePolicy, StepBudget, hookimpl

ROWS = ("order_takes_the_largest_numbers", "starts_on_what_is_there")
CAUGHT = {
    "same-row-twice": ("order_gives_distinct_valid_rows", *ROWS),
    "row-too-many": ("order_gives_distinct_valid_rows", *ROWS),
    "rows-as-floats": ("order_gives_distinct_valid_rows", *ROWS),
    "nobody-waits": ("order_gives_distinct_valid_rows", "starts_on_what_is_there"),
    "overflows": ("order_takes_the_largest_numbers",),
    "no-budget": ("budget_is_one_that_can_be_spent", "starts_on_what_is_there"),
    "takes-too-much": ("take_stays_within_what_it_may",),
    "victims-outside": ("victims_are_distinct_running_rows",),
    "writes-a-column": ("questions_change_nothing",),
    "counts-its-calls": ("questions_change_nothing",),
    "counts-in-its-module": ("questions_change_nothing",),
    "hidden-memory": ("the_same_question_has_the_same_answer",),
    "reads-the-clock": ("no_clock_random_thread_or_io",),
    "global-random": ("no_clock_random_thread_or_io",),
    "starts-a-thread": ("no_clock_random_thread_or_io",),
    "writes-a-log": ("no_clock_random_thread_or_io",),
    "reads-the-cache": ("reads_only_what_its_manifest_needs",),
    "wants-an-empty-start": ("starts_on_what_is_there", "no_clock_random_thread_or_io", "keeps_no_table"),
    "never-forgets": ("forgets_requests_that_have_ended",),
    "forgets-the-finished-alone": ("forgets_requests_that_have_ended",),
    "never-forgets-tenants": ("forgets_requests_that_have_ended",),
    "keeps-its-tables": ("keeps_no_table",),
    "keeps-a-column": ("keeps_no_table",),
    "spends-what-is-free": ("budget_is_one_that_can_be_spent",),
    "starts-with-nobody": (),
    "leaves-the-order": (),
    "some-only": (),
    "compares-all-pairs": ("work_grows_no_faster_than_sorting",),
}
SEEN: list[int] = []


class Good(SchedulePolicy):
    def __init__(self) -> None:
        self.state: dict[int, int] = {}

    def order(self, waiting: Any, view: Any) -> Any:
        return np.argsort(waiting.prompt_tokens, kind="stable")


class SameRowTwice(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        return np.zeros(len(waiting), dtype=np.intp)


class RowTooMany(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        return np.arange(len(waiting) + 1)


class RowsAsFloats(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        return np.arange(len(waiting)) / 1.0


class NobodyWaits(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        return np.argsort(waiting.arrival - waiting.arrival.min())


class Overflows(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        return np.argsort([math.exp(tokens) for tokens in waiting.prompt_tokens.tolist()], kind="stable")


class NoBudget(Good):
    def budget(self, view: Any) -> StepBudget:
        return StepBudget(prefill_tokens=0)


class TakesTooMuch(Good):
    def take(self, row: int, most: int, waiting: Any, chosen: Any, view: Any) -> int:
        return most + 1


class VictimsOutside(Good):
    def victims(self, running: Any, need: Any, for_row: Any, view: Any) -> Any:
        return np.array([len(running)])


class WritesAColumn(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        waiting.held_tokens.flags.writeable = True
        waiting.held_tokens[:] = 0
        return None


class CountsItsCalls(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        self.state[0] = self.state.get(0, 0) + 1
        return None


class CountsInItsModule(Good):
    def budget(self, view: Any) -> StepBudget:
        SEEN.append(view.step)
        return StepBudget()


class HiddenMemory(Good):
    """In a closure, where no look at attributes finds it."""

    def __init__(self) -> None:
        last = [0]

        def order(waiting: Any, view: Any) -> Any:
            before, last[0] = last[0], len(waiting)
            return np.arange(len(waiting))[:: -1 if before else 1]

        self._order = order

    def order(self, waiting: Any, view: Any) -> Any:
        return self._order(waiting, view)


class ReadsTheClock(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        return None if monotonic() else waiting.uid.argsort()


class GlobalRandom(Good):
    def budget(self, view: Any) -> StepBudget:
        return StepBudget(prefill_tokens=16 + int(random.random()))


class StartsAThread(Good):
    def observe(self, record: Any) -> None:
        thread = threading.Thread(target=len, args=([],))
        thread.start()
        thread.join()


class WritesALog(Good):
    def observe(self, record: Any) -> None:
        with open("/dev/null", "a", encoding="utf-8") as log:
            log.write("a step\n")


class ReadsTheCache(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        return np.argsort(-waiting.cached_tokens, kind="stable")


class WantsAnEmptyStart(Good):
    def start(self, waiting: Any, running: Any, view: Any) -> None:
        if len(waiting):
            raise RuntimeError("started with somebody there")


class NeverForgets(Good):
    def observe(self, record: Any) -> None:
        self.state.update(dict.fromkeys(record.uids.tolist(), record.step))


class ForgetsTheFinishedAlone(Good):
    def observe(self, record: Any) -> None:
        self.state.update(dict.fromkeys(record.admitted, record.step))
        for uid in record.finished:
            self.state.pop(uid, None)


class NeverForgetsTenants(Good):
    def observe(self, record: Any) -> None:
        for tenant, tokens in zip(record.tenants.tolist(), record.tokens.tolist(), strict=True):
            self.state[tenant] = self.state.get(tenant, 0) + tokens


class KeepsItsTables(Good):
    def start(self, waiting: Any, running: Any, view: Any) -> None:
        self.running = running


class KeepsAColumn(Good):
    def start(self, waiting: Any, running: Any, view: Any) -> None:
        self.uids = waiting.uid


class SpendsWhatIsFree(Good):
    def budget(self, view: Any) -> StepBudget:
        return StepBudget(prefill_tokens=min(view.max_prefill, view.free + view.evictable))


class StartsWithNobody(Good):
    """Odd, and right: it knows those alone who were there at its start or were admitted since."""

    def start(self, waiting: Any, running: Any, view: Any) -> None:
        self.state = dict.fromkeys(running.uid.tolist(), 0)

    def observe(self, record: Any) -> None:
        self.state.update(dict.fromkeys(record.admitted, 0))
        for uid in record.uids.tolist():
            self.state[uid] += 1
        for uid in (*record.finished, *record.aborted, *record.retracted):
            self.state.pop(uid, None)


class LeavesTheOrder(Good):
    """Odd, and right: arrival order, one new request a step."""

    def order(self, waiting: Any, view: Any) -> Any:
        return None

    def take(self, row: int, most: int, waiting: Any, chosen: Any, view: Any) -> int:
        return HOLD if len(chosen.rows) else most


class SomeOnly(Good):
    """Odd, and right: who is long waits for the bound of skips."""

    def order(self, waiting: Any, view: Any) -> Any:
        return np.flatnonzero(waiting.prompt_tokens < 20)


class ComparesAllPairs(Good):
    def order(self, waiting: Any, view: Any) -> Any:
        length = waiting.prompt_tokens
        return np.argsort((length[:, None] > length[None, :]).sum(axis=1), kind="stable")


@hookimpl
def jackfield_schedule_policy(context: Any) -> SchedulePolicy:
    made: SchedulePolicy = globals()[context.name.replace("-", " ").title().replace(" ", "")]()
    return made
