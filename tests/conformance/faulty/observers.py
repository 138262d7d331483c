"""Observers with one fault each."""

from __future__ import annotations

from typing import Any

from jackfield.hookspecs import WAIT_NUMBERS, WaitReason, hookimpl

EACH = "a_run_in_each_process"
CAUGHT = {
    "good": (),
    "wants-texts": ("with_and_without_texts", EACH, "two_uses_are_apart"),
    "latin-rids": ("with_and_without_texts", EACH, "two_uses_are_apart"),
    "writes-records": (EACH, "with_and_without_texts", "two_uses_are_apart"),
    "wants-requests": ("stops_without_having_heard_anything", "a_step_of_256_requests", EACH),
    "one-for-all": ("two_uses_are_apart",),
    "compares-all-pairs": ("a_step_of_256_requests",),
    "only-inline": (EACH,),
    "knows-all-ends": ("takes_words_that_are_new",),
    "knows-all-reasons": ("takes_words_that_are_new",),
    "thinks-all-began": (EACH,),
}


class Good:
    def __init__(self) -> None:
        self.finished = 0
        self.tokens = 0
        self.open = False

    @hookimpl
    def jackfield_process_started(self, process: Any) -> None:
        self.open = True

    @hookimpl
    def jackfield_process_stopping(self, process: Any) -> None:
        self.open = False

    @hookimpl
    def jackfield_requests_finished(self, requests: Any) -> None:
        assert self.open, "called before it was started or after it was stopped"
        for request in requests:
            self.request(request)

    @hookimpl
    def jackfield_batch_committed(self, record: Any) -> None:
        self.tokens += int(record.tokens.sum())

    def request(self, request: Any) -> None:
        self.finished += 1


class WantsTexts(Good):
    def request(self, request: Any) -> None:
        self.tokens += len(request.text)


class LatinRids(Good):
    def request(self, request: Any) -> None:
        request.rid.encode("latin-1")


class WritesRecords(Good):
    def request(self, request: Any) -> None:
        request.stage_times.clear()


class WantsRequests(Good):
    @hookimpl
    def jackfield_process_stopping(self, process: Any) -> None:
        self.tokens //= self.finished


class OneForAll(Good):
    shared: list[Good] = []  # noqa: RUF012  the fault

    @hookimpl
    def jackfield_process_started(self, process: Any) -> None:
        self.shared.append(self)

    @hookimpl
    def jackfield_process_stopping(self, process: Any) -> None:
        self.shared.clear()

    @hookimpl
    def jackfield_requests_finished(self, requests: Any) -> None:
        self.shared[0].finished += len(requests)


class ComparesAllPairs(Good):
    @hookimpl
    def jackfield_batch_committed(self, record: Any) -> None:
        uids = record.uids.tolist()
        self.tokens += sum(one < other for one in uids for other in uids)


class OnlyInline(Good):
    @hookimpl
    def jackfield_process_started(self, process: Any) -> None:
        self.open = {"inline": True}[process.role]


class KnowsAllEnds(Good):
    def request(self, request: Any) -> None:
        self.finished += {"stop": 1, "length": 1, "abort": 0, "error": 0}[request.finish_type]


class KnowsAllReasons(Good):
    @hookimpl
    def jackfield_step_decided(self, decision: Any) -> None:
        for passed in decision.passed:
            WAIT_NUMBERS.get(WaitReason(passed.reason))


class ThinksAllBegan(Good):
    """Takes it that who is aborted was admitted."""

    @hookimpl
    def jackfield_batch_committed(self, record: Any) -> None:
        self.begun = {*getattr(self, "begun", set()), *record.admitted}
        for uid in (*record.finished, *record.aborted):
            self.begun.remove(uid)


@hookimpl
def jackfield_observer(context: Any) -> Good:
    made: Good = globals()[context.name.replace("-", " ").title().replace(" ", "")]()
    return made
