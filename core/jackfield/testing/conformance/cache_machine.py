"""Random requests for a cache beside its model, by hypothesis: the same ones on every machine, and shortened where one fails."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from jackfield.testing.conformance.cache_model import CacheModel

NAMESPACES = (b"", b"salt")
PICK = st.integers(0, 9)


def run_machine(make: Callable[[], CacheModel]) -> None:
    """Some hundred operations on new models. Raises AssertionError with the shortest sequence that was found."""
    machine = type("Machine", (CacheMachine,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class CacheMachine(RuleBasedStateMachine):
    """Requests over few kinds of prompts, so that prefixes meet and pages part inside."""

    make: Callable[[], CacheModel]

    def __init__(self) -> None:
        super().__init__()
        self.model = type(self).make()

    def _tokens(self, letters: list[int], length: int) -> list[int]:
        half = max(1, self.model.page // 2)
        return ([letter for letter in letters for _ in range(half)] + [0] * length)[:length]

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        letters=st.lists(st.integers(0, 1), max_size=6),
        pages=st.integers(0, 9),
        more=st.integers(1, 8),
        share=st.sampled_from([0, 1]),
    )
    def whole_request(self, namespace: bytes, letters: list[int], pages: int, more: int, share: float) -> None:
        length = pages * self.model.page + more
        self.model.arrive(namespace, self._tokens(letters, length), length - 1)
        self.model.compute(-1, length - self.model.requests[-1].lease.length)
        self.model.slide(-1, share)
        self.model.commit(-1, True)
        self.model.leave(-1)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        letters=st.lists(st.integers(0, 1), max_size=6),
        length=st.integers(1, 60),
        limit=st.integers(0, 70),
    )
    def arrive(self, namespace: bytes, letters: list[int], length: int, limit: int) -> None:
        self.model.arrive(namespace, self._tokens(letters, length), limit)

    @rule(pick=PICK, count=st.integers(1, 40), commit=st.booleans(), final=st.booleans())
    def compute(self, pick: int, count: int, commit: bool, final: bool) -> None:
        self.model.compute(pick, count)
        if commit:
            self.model.commit(pick, final)

    @rule(
        namespace=st.sampled_from(NAMESPACES), letters=st.lists(st.integers(0, 1), max_size=6), pages=st.integers(1, 5)
    )
    def race(self, namespace: bytes, letters: list[int], pages: int) -> None:
        """Two requests compute the same tokens at one time; both stay."""
        length = pages * self.model.page + 1
        for _ in range(2):
            self.model.arrive(namespace, self._tokens(letters, length), length - 1)
        for pick in (-2, -1):
            self.model.compute(pick, length - len(self.model.requests[pick].row))
        for pick in (-2, -1):
            self.model.commit(pick, False)

    @rule(pick=PICK, share=st.sampled_from([0.3, 0.7, 1]))
    def slide(self, pick: int, share: float) -> None:
        self.model.slide(pick, share)

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        self.model.leave(pick)

    @rule(pages=st.integers(0, 8), narrow=st.integers(0, 6))
    def evict(self, pages: int, narrow: int) -> None:
        self.model.evict(pages, narrow if self.model.window is not None else 0)

    @rule()
    def poll(self) -> None:
        self.model.poll()

    @rule()
    def reset(self) -> None:
        self.model.reset()

    @invariant()
    def all_is_right(self) -> None:
        self.model.check()
