"""The normal loop: the order of the phases, what it answers, and a whole run on a real scheduler."""

from __future__ import annotations

from typing import Any

from jackfield.hookspecs import StepOutcome, Wake, Want
from jackfield_scheduler_loops.normal import NormalLoop


class Step:
    deferred = False

    def ready(self) -> bool:
        return True


class Recorder:
    """Phases that note their calls; `work` batches are there to run."""

    def __init__(self, work: int) -> None:
        self.calls: list[str] = []
        self.work = work

    def _call(self, name: str) -> None:
        self.calls.append(name)

    def ingest(self) -> int:
        self._call("ingest")
        return 0

    def poll(self) -> int:
        self._call("poll")
        return 0

    def next_batch(self, want: Want = Want.ANY) -> Any | None:
        self._call("next_batch")
        self.work -= 1
        return object() if self.work >= 0 else None

    def launch(self, batch: Any, lane: int = 0) -> Step:
        self._call("launch")
        return Step()

    def sample(self, step: Any) -> None:
        self._call("sample")

    def commit(self, step: Any) -> None:
        self._call("commit")

    def wait(self, until: float | None = None) -> Wake:
        self._call("wait")
        return Wake.NOTHING

    def idle(self) -> None:
        self._call("idle")


def test_each_step_is_committed_before_the_next_is_decided() -> None:
    phases = Recorder(work=2)
    loop = NormalLoop(phases)
    assert [loop.step() for _ in range(3)] == [StepOutcome.RAN, StepOutcome.RAN, StepOutcome.IDLE]
    one = ["ingest", "poll", "next_batch", "launch", "sample", "commit"]
    assert phases.calls == [*one, *one, "ingest", "poll", "next_batch", "idle"]


def test_step_never_waits_and_settle_has_nothing_to_do_between_steps() -> None:
    phases = Recorder(work=1)
    loop = NormalLoop(phases)
    loop.step()
    loop.settle()
    assert phases.calls.count("commit") == 1
    assert "wait" not in phases.calls
