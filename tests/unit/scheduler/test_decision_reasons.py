"""Why a waiting request did not get in: every reason, with its numbers, in the step's record and in the request's life."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import (
    HOLD,
    Amounts,
    Chosen,
    DecodeTurn,
    Gate,
    GateAnswer,
    GateEvent,
    GateRequest,
    PassedOver,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    StepDecision,
    WaitReason,
)
from jackfield.managers.story import life_story
from jackfield.testing.scheduler_harness import SchedulerHarness


class Scripted(SchedulePolicy):
    """Answers from what it was given; `takes` maps uid -> tokens for `take`."""

    def __init__(
        self,
        *,
        budget: StepBudget | None = None,
        order: list[int] | Exception | None = None,
        takes: dict[int, int] | None = None,
        preempts: bool = False,
    ) -> None:
        self._budget = budget or StepBudget()
        self._order = order
        self._takes = takes or {}
        self._preempts = preempts

    def budget(self, view: SchedulerView) -> StepBudget:
        return self._budget

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        if isinstance(self._order, Exception):
            raise self._order
        return None if self._order is None else np.array(self._order, dtype=np.intp)

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        return self._takes.get(int(waiting.uid[row]), most)

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        return np.argsort(running.priority) if self._preempts else np.empty(0, dtype=np.intp)


def prompt(first: int, length: int) -> list[int]:
    return [first, *range(100, 99 + length)]


def last(harness: SchedulerHarness) -> StepDecision:
    return harness.scheduler.decisions()[-1]


def stop(reason: WaitReason, uid: int = 0, **numbers: int) -> PassedOver:
    return PassedOver(uid=uid, reason=reason, numbers=numbers)


def life(harness: SchedulerHarness, name: str) -> dict[str, Any]:
    (only,) = harness.scheduler.why(name)["requests"]
    return dict(only)


def words(harness: SchedulerHarness, name: str) -> str:
    return "\n".join(life_story(life(harness, name)))


def of(harness: SchedulerHarness, name: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in life(harness, name)["events"] if event["event"] == kind]


def test_places() -> None:
    run = SchedulerHarness(max_running_requests=1)
    run.submit(prompt(1, 3), max_new_tokens=4)
    rid = run.submit(prompt(2, 3), max_new_tokens=1)
    run.turn()
    assert last(run).stopped == stop(WaitReason.PLACES, uid=2, running=1, most=1)
    run.turn()
    assert last(run).stopped == stop(WaitReason.PLACES, running=1, most=1)
    assert life(run, rid)["waiting_for"] == {"places": 2}
    assert "has waited 2 rounds: 2 because as many ran as may" in words(run, rid)
    assert "1 of 1 places were taken" in words(run, rid)
    run.run()
    (admitted,) = of(run, rid, "admitted")
    assert admitted["rounds"] == {"places": 4}  # 4 steps of the other
    assert admitted["skips"] == 0


def test_memory_with_its_numbers() -> None:
    run = SchedulerHarness(total_slots=40, schedule_conservativeness=2.0)
    run.submit(prompt(1, 10), max_new_tokens=10)
    rid = run.submit(prompt(2, 20), max_new_tokens=10)
    run.turn()
    decision = last(run)
    assert decision.stopped is not None
    assert (decision.stopped.uid, decision.stopped.reason) == (2, WaitReason.MEMORY)
    numbers = decision.stopped.numbers
    assert (numbers["free"], numbers["evictable"]) == (40, 0)
    assert numbers["needed"] + numbers["promised"] > 40
    assert 20 < numbers["needed"] <= 30
    assert "it needed" in words(run, rid)
    assert f"{numbers['promised']} were promised to running requests" in words(run, rid)
    run.run()
    assert set(of(run, rid, "admitted")[0]["rounds"]) == {"memory"}


def test_the_steps_prompt_tokens() -> None:
    run = SchedulerHarness(max_prefill_tokens=10)
    run.submit(prompt(1, 10), max_new_tokens=1)
    rid = run.submit(prompt(2, 10), max_new_tokens=1)
    run.turn()
    assert last(run).stopped == stop(WaitReason.TOKENS, uid=2, taken=10)
    run.run()
    assert of(run, rid, "admitted")[0]["rounds"] == {"tokens": 1}
    assert "10 prompt tokens were in the step" in words(run, rid)


def test_no_further_cut() -> None:
    run = SchedulerHarness(policy=Scripted(budget=StepBudget(prefill_tokens=10, partial_prefills=0)))
    run.submit(prompt(1, 6), max_new_tokens=1)
    run.submit(prompt(2, 8), max_new_tokens=1)
    run.turn()
    assert last(run).stopped == stop(WaitReason.CUTS, uid=2, missing=8, left=4)


def test_the_policy_holds_everybody_back() -> None:
    run = SchedulerHarness(policy=Scripted(takes={2: HOLD}))
    for i in range(3):
        run.submit(prompt(i, 3), rid=f"r{i}", max_new_tokens=2)
    run.turn()
    assert last(run).stopped == stop(WaitReason.HELD, uid=2)
    assert life(run, "r2")["waiting_for"] == {"held": 1}


def test_the_policy_passes_one_over_and_the_next_gets_in() -> None:
    run = SchedulerHarness(policy=Scripted(takes={1: 0}))
    for i in range(2):
        run.submit(prompt(i, 3), rid=f"r{i}", max_new_tokens=2)
    run.turn()
    assert last(run).passed == (stop(WaitReason.PASSED, uid=1),)
    assert last(run).stopped is None
    assert life(run, "r0")["waiting_for"] == {"passed": 1}
    assert "1 because the policy passed it over" in words(run, "r0")


def test_who_was_passed_over_did_not_wait_for_what_ended_the_round() -> None:
    run = SchedulerHarness(policy=Scripted(takes={1: 0}), max_running_requests=1)
    for i in range(3):
        run.submit(prompt(i, 3), rid=f"r{i}", max_new_tokens=2)
    run.turn()
    assert life(run, "r0")["waiting_for"] == {"passed": 1}
    assert life(run, "r2")["waiting_for"] == {"places": 1}


def test_no_more_candidates() -> None:
    run = SchedulerHarness(policy=Scripted(budget=StepBudget(candidates=1)))
    for i in range(2):
        run.submit(prompt(i, 3), max_new_tokens=2)
    run.turn()
    assert last(run).stopped == stop(WaitReason.CANDIDATES, looked_at=1)


def test_left_out_by_the_order() -> None:
    run = SchedulerHarness(policy=Scripted(order=[1]))
    for i in range(4):
        run.submit(prompt(i, 3), max_new_tokens=2)
    run.turn()
    assert [one.uid for one in last(run).chosen] == [2]
    assert last(run).stopped == stop(WaitReason.LEFT_OUT, left_out=3)


def test_decodes_first() -> None:
    run = SchedulerHarness(policy=Scripted(budget=StepBudget(decode=DecodeTurn.FIRST)))
    run.submit(prompt(1, 3), max_new_tokens=3)
    run.turn()
    rid = run.submit(prompt(2, 3), max_new_tokens=1)
    run.turn()
    assert last(run).stopped == stop(WaitReason.DECODES_FIRST)
    run.run()
    assert of(run, rid, "admitted")[0]["rounds"] == {"decodes_first": 2}


def test_twins() -> None:
    run = SchedulerHarness(max_prefill_tokens=60)
    run.submit(prompt(1, 100), max_new_tokens=1)
    run.turn()
    rid = run.submit([*prompt(1, 100), 7], max_new_tokens=1)
    run.turn()
    (passed,) = last(run).passed
    assert (passed.uid, passed.reason, passed.numbers) == (2, WaitReason.TWIN, {"cached": 60})
    run.run()
    (admitted,) = of(run, rid, "admitted")
    assert (admitted["rounds"], admitted["cached"], admitted["skips"]) == ({"twin": 1}, 100, 1)
    assert "others overtook it 1 time" in words(run, rid)


def test_who_was_passed_over_too_often_goes_first() -> None:
    run = SchedulerHarness(policy=Scripted(takes={1: 0}), max_skips=2)
    run.submit(prompt(1, 3), max_new_tokens=1)
    for _ in range(3):
        run.turn()
    assert [decision.overdue for decision in run.scheduler.decisions() if decision.step] == [(1,)]


def test_rounds_in_which_nobody_could_run_for_one_reason_are_one_entry_and_all_counted() -> None:
    run = SchedulerHarness(policy=Scripted(order=[]))
    rid = run.submit(prompt(1, 3), max_new_tokens=1)
    for _ in range(50):
        run.turn()
    (only,) = run.scheduler.decisions()
    assert (only.step, only.stopped) == (0, stop(WaitReason.LEFT_OUT, left_out=1))
    assert life(run, rid)["waiting_for"] == {"left_out": 50}


def test_retracted_for_running_requests_and_admitted_again() -> None:
    run = SchedulerHarness(total_slots=48, schedule_conservativeness=0.3)
    rids = [run.submit(prompt(i, 8), max_new_tokens=24) for i in range(2)]
    run.run()
    for rid in rids:
        assert run.answers[rid].ids == run.expected(rid, 24)
    retracted = [rid for rid in rids if of(run, rid, "retracted")]
    assert retracted, "the pool was meant to be too small"
    one = retracted[0]
    kinds = [event["event"] for event in life(run, one)["events"]]
    at = kinds.index("retracted")
    assert kinds[:at] == ["arrived", "admitted", "prefill", "first_token"]
    assert "admitted" in kinds[at:]
    event = of(run, one, "retracted")[0]
    assert event["for_uid"] == 0
    assert of(run, one, "admitted")[1]["known"] == 8 + event["outputs"]
    # From the round after the one that took it back to the one before it got in again.
    rounds = of(run, one, "admitted")[1]["step"] - 1 - (event["step"] + 1)
    assert of(run, one, "admitted")[1]["rounds"] == {"memory": rounds}
    told = [decision for decision in run.scheduler.decisions() if decision.retracted]
    assert [one.uid for decision in told for one in decision.retracted] == [
        life(run, rid)["uid"] for rid in rids for _ in of(run, rid, "retracted")
    ]
    assert "its memory went to requests that run" in words(run, one)
    assert {decision.stopped.reason for decision in told if decision.stopped} <= {WaitReason.RETRACTING}


def test_retracted_for_a_more_urgent_one() -> None:
    run = SchedulerHarness(policy=Scripted(preempts=True), max_running_requests=1)
    low = run.submit(prompt(1, 8), max_new_tokens=10)
    run.turn()
    high = run.submit(prompt(2, 8), max_new_tokens=2, priority=5)
    run.run()
    (event,) = of(run, low, "retracted")
    assert event["for_uid"] == life(run, high)["uid"]
    assert "its memory went to request number 2" in words(run, low)
    assert of(run, high, "admitted")[0]["step"] == event["step"] + 1


def test_a_policys_fault_stands_in_the_record() -> None:
    run = SchedulerHarness(policy=Scripted(order=ValueError("not my day")))
    run.submit(prompt(1, 3), max_new_tokens=2)
    run.turn()
    assert last(run).faults == ("ValueError: not my day",)
    run.turn()
    assert last(run).faults == ()  # nobody waits, so that it was not asked


def test_steps_in_which_prompts_kept_others_from_decoding() -> None:
    run = SchedulerHarness()
    rid = run.submit(prompt(1, 3), max_new_tokens=4)
    run.turn()
    for i in range(2):
        run.submit(prompt(2 + i, 3), max_new_tokens=1)
        run.turn()
    run.run()
    (ended,) = of(run, rid, "ended")
    assert ended["stalled"] == 2
    assert "between its tokens it stood 2 steps" in words(run, rid)


class Door(Gate):
    """Opens when told."""

    def __init__(self) -> None:
        self.uids: list[int] = []
        self.open = False

    def enter(self, request: GateRequest) -> GateAnswer:
        self.uids.append(request.uid)
        return GateAnswer.WAITING

    def poll(self) -> list[GateEvent]:
        uids, self.uids = (self.uids, []) if self.open else ([], self.uids)
        return [GateEvent(uid=uid) for uid in uids]

    def cancel(self, uid: int) -> None:
        self.uids.remove(uid)


def test_a_gate_is_told_and_is_no_wait_for_a_place() -> None:
    door = Door()
    run = SchedulerHarness(gates=[("gate.door", door)])
    rid = run.submit(prompt(1, 3), max_new_tokens=1)
    for _ in range(3):
        run.turn()
        run.clock.advance(1.0)
    assert life(run, rid)["state"] == "gated"
    door.open = True
    run.run()
    assert [event["event"] for event in life(run, rid)["events"]][:4] == ["arrived", "gated", "opened", "admitted"]
    assert of(run, rid, "gated")[0]["gate"] == "gate.door"
    assert of(run, rid, "admitted")[0]["rounds"] == {}
    assert "waits at gate.door" in words(run, rid)


@pytest.mark.parametrize("reason", list(WaitReason))
def test_every_reason_has_words(reason: WaitReason) -> None:
    from jackfield.hookspecs import WAIT_NUMBERS
    from jackfield.managers.story import _NUMBERS, _WAITED

    assert _WAITED[reason.value]
    numbers = WAIT_NUMBERS.get(reason, ())
    if numbers:
        text = _NUMBERS[reason.value].format_map({**dict.fromkeys(numbers, 1), "who": "it"})
        assert "{" not in text
