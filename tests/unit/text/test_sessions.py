"""Sessions: what a turn goes on from, what an aborted one leaves, limits, ends, and a machine against plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.session import SessionParams, session_params
from jackfield.managers.sessions.sessions import SessionLimits, Sessions, Turn
from jackfield.observability.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> Sessions:
    return Sessions(clock, SessionLimits(sessions=3, tokens=40, timeout=100.0))


def begin(store: Sessions, session: str, label: str, prompt: Sequence[int], most: int = 3, **how: Any) -> Turn:
    return store.begin(store.resume({"id": session, **how}), label, prompt, most)


def turn(
    store: Sessions, session: str, label: str, prompt: Sequence[int], answer: Sequence[int], **how: Any
) -> list[int]:
    """A whole turn; the context that it went on from."""
    resumed = store.resume({"id": session, **how})
    store.end(store.begin(resumed, label, prompt, len(answer)), answer)
    return list(resumed.context)


def refused(call: Any, param: str | None, match: str, status: int = 400) -> None:
    with pytest.raises(RequestError, match=match) as caught:
        call()
    assert (caught.value.param, caught.value.status_code) == (param, status)


def test_append_branch_cut_and_drop(sessions: Sessions) -> None:
    one = sessions.open()
    assert turn(sessions, one, "a", [1, 2], [3]) == []
    assert turn(sessions, one, "b", [4], [5, 6]) == [1, 2, 3]
    assert turn(sessions, one, "c", [7], []) == [1, 2, 3, 4, 5, 6]
    assert turn(sessions, one, "d", [8], [], rid="a") == [1, 2, 3]  # a branch; b and c are still there
    assert list(sessions.resume({"id": one, "rid": "c"}).context) == [1, 2, 3, 4, 5, 6, 7]
    assert list(sessions.resume({"id": one}).context) == [1, 2, 3, 8]  # the latest
    assert list(sessions.resume({"id": one, "rid": "b", "offset": 2}).context) == [1, 2]
    assert list(sessions.resume({"id": one, "rid": "b", "offset": 5}).context) == [1, 2, 3, 4, 5]
    assert list(sessions.resume({"id": one, "rid": "b", "drop_previous_output": True}).context) == [1, 2, 3, 4]
    for all_of_it in (-1, None):
        assert len(sessions.resume({"id": one, "rid": "b", "offset": all_of_it}).context) == 6
    # What goes on from a cut context is cut for those after it as well.
    assert turn(sessions, one, "e", [9], [10], rid="b", offset=2) == [1, 2]
    assert list(sessions.resume({"id": one, "rid": "e"}).context) == [1, 2, 9, 10]


def test_replace_forgets_what_followed_and_only_when_the_turn_succeeds(sessions: Sessions) -> None:
    one = sessions.open()
    turn(sessions, one, "a", [1], [2])
    turn(sessions, one, "b", [3], [4])
    turn(sessions, one, "c", [5], [6])
    doomed = begin(sessions, one, "x", [7], rid="a", replace=True)
    refused(lambda: sessions.resume({"id": one, "rid": "c"}), "session_params.rid", "no turn of the rid 'c'")
    refused(lambda: begin(sessions, one, "c", [7], rid="a"), "rid", "has a turn of the rid 'c'")
    sessions.end(doomed, None)
    assert list(sessions.resume({"id": one}).context) == [1, 2, 3, 4, 5, 6]  # c is the latest again
    assert turn(sessions, one, "b", [8], [9], rid="a", replace=True) == [1, 2]  # a label of one that goes
    assert list(sessions.resume({"id": one}).context) == [1, 2, 8, 9]
    refused(lambda: sessions.resume({"id": one, "rid": "c"}), "session_params.rid", "no turn")
    assert turn(sessions, one, "new", [5], [], replace=True) == []
    refused(lambda: sessions.resume({"id": one, "rid": "a"}), "session_params.rid", "no turn")


def test_a_turn_that_runs_cannot_be_continued_and_one_that_ends_without_an_answer_is_gone(sessions: Sessions) -> None:
    one = sessions.open()
    turn(sessions, one, "a", [1], [2])
    running = begin(sessions, one, "b", [3])
    for how in ({}, {"rid": "b"}, {"rid": "a", "replace": True}, {"replace": True}):
        with pytest.raises(RequestError, match="'b' of this session is still running"):
            sessions.resume({"id": one, **how})
    assert list(sessions.resume({"id": one, "rid": "a"}).context) == [1, 2]  # a branch beside it
    sessions.end(running, None)
    sessions.end(running, [4])  # too late
    assert list(sessions.resume({"id": one}).context) == [1, 2]
    refused(lambda: sessions.resume({"id": one, "rid": "b"}), "session_params.rid", "no turn")


def test_a_session_that_changes_while_a_turn_is_prepared(sessions: Sessions) -> None:
    one = sessions.open()
    turn(sessions, one, "a", [1], [2])
    prepared = sessions.resume({"id": one})
    turn(sessions, one, "b", [3], [4])
    refused(lambda: sessions.begin(prepared, "c", [5], 1), "session_params", "has changed")
    named = sessions.resume({"id": one, "rid": "a"})
    turn(sessions, one, "d", [3], [4])
    sessions.end(sessions.begin(named, "e", [5], 1), [6])
    prepared = sessions.resume({"id": one})
    sessions.close(one)
    sessions.open(session_id=one)
    refused(lambda: sessions.begin(prepared, "f", [5], 1), "session_params", "has changed")


def test_tokens_are_bounded_with_what_a_running_answer_may_add(sessions: Sessions) -> None:
    one = sessions.open()
    turn(sessions, one, "a", list(range(10)), list(range(10)))
    running = begin(sessions, one, "b", [1] * 5, 5, rid="a")
    refused(lambda: begin(sessions, one, "c", [1] * 5, 6, rid="a"), "session_params", "holds 30 tokens of at most 40")
    sessions.end(running, [1])
    sessions.end(begin(sessions, one, "c", [1] * 5, 9, rid="a"), None)
    # What a turn replaces makes room for it.
    assert turn(sessions, one, "d", [1] * 20, [2] * 20, replace=True) == []
    refused(lambda: begin(sessions, one, "e", [1], 0), "session_params", "holds 40 tokens")
    small = sessions.open(max_tokens=30, capacity_of_str_len=5)
    refused(lambda: begin(sessions, small, "a", [1] * 6, 0), "session_params", "at most 5")


def test_turns_are_bounded_too(clock: ManualClock) -> None:
    store = Sessions(clock, SessionLimits(sessions=1, tokens=10**6, timeout=100.0, turns=40))
    one = store.open()
    for number in range(40):
        turn(store, one, f"t{number}", [1], [], rid=None if number == 0 else "t0")
    refused(lambda: begin(store, one, "more", [1]), "session_params", "has 40 turns")
    assert store.numbers() == {"open": 1, "tokens": 40}
    assert turn(store, one, "anew", [1], [2], rid="t0", replace=True) == [1]
    assert store.numbers() == {"open": 1, "tokens": 3}


def test_a_long_conversation_is_put_together_from_all_its_turns(clock: ManualClock) -> None:
    store = Sessions(clock, SessionLimits(sessions=1, tokens=10**6, timeout=100.0))
    one = store.open()
    for number in range(2000):
        turn(store, one, f"t{number}", [number], [number])
    context = list(store.resume({"id": one}).context)
    assert context == [number for number in range(2000) for _ in range(2)]


def test_sessions_are_bounded_and_ids_are_not_used_twice(sessions: Sessions) -> None:
    mine = sessions.open(session_id="mine")
    assert mine == "mine"
    refused(lambda: sessions.open(session_id="mine"), "session_id", "is open")
    others = {sessions.open(), sessions.open()}
    assert len({mine, *others}) == 3
    refused(lambda: sessions.open(), None, "3 sessions are open.*--max-sessions", 503)
    assert sessions.close("mine")
    refused(lambda: sessions.close("mine"), "session_id", "no session 'mine'")
    assert sessions.open(session_id="mine") == "mine"


def test_closing_waits_for_the_turn_that_runs(sessions: Sessions) -> None:
    one = sessions.open()
    turn(sessions, one, "a", [1], [2])
    running = begin(sessions, one, "b", [3])
    assert not sessions.close(one)
    refused(lambda: sessions.resume({"id": one, "rid": "a"}), "session_params.id", "being closed")
    assert len(sessions) == 1
    sessions.end(running, [4])
    assert len(sessions) == 0
    refused(lambda: sessions.resume({"id": one}), "session_params.id", "no session")


def test_an_idle_session_is_forgotten_and_a_busy_one_is_not(sessions: Sessions, clock: ManualClock) -> None:
    idle, busy, quick = sessions.open(), sessions.open(), sessions.open(timeout=10)
    running = begin(sessions, busy, "a", [1])
    clock.advance(10)
    assert len(sessions) == 2
    refused(lambda: sessions.resume({"id": quick}), "session_params.id", "may have expired")
    clock.advance(50)
    turn(sessions, idle, "a", [1], [2])
    clock.advance(99)
    assert len(sessions) == 2
    clock.advance(1)
    assert len(sessions) == 1
    sessions.end(running, [2])
    clock.advance(99.9)
    assert len(sessions) == 1
    clock.advance(0.1)
    sessions.reap()
    assert sessions._sessions == {}
    # A client may lower the time, not raise it.
    sessions.open(timeout=10**9)
    clock.advance(100)
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_id", ""), ("session_id", "x" * 129), ("session_id", 5), ("session_id", "\ud800"),
        ("max_tokens", 0), ("max_tokens", True), ("max_tokens", 1.5), ("max_tokens", "5"), ("capacity_of_str_len", -1),
        ("timeout", 0), ("timeout", True), ("timeout", float("nan")), ("timeout", float("inf")), ("timeout", "1"),
    ],
)  # fmt: skip
def test_bad_settings_of_a_session(sessions: Sessions, field: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        sessions.open(**{field: value})
    assert caught.value.param == field
    assert len(sessions) == 0
    sessions.open(timeout=10**400)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ("x", "session_params"), ([], "session_params"), ({}, "session_params.id"), ({"id": None}, "session_params.id"),
        ({"id": 5}, "session_params.id"), ({"id": "s", "rid": 5}, "session_params.rid"),
        ({"id": "s", "offset": 0}, "session_params.offset"), ({"id": "s", "offset": -2}, "session_params.offset"),
        ({"id": "s", "offset": True}, "session_params.offset"), ({"id": "s", "offset": 1.0}, "session_params.offset"),
        ({"id": "s", "replace": 1}, "session_params.replace"),
        ({"id": "s", "drop_previous_output": "yes"}, "session_params.drop_previous_output"),
        ({"id": "s", "replace": True, "offset": 3}, "session_params.replace"),
        ({"id": "s", "replace": True, "drop_previous_output": True}, "session_params.replace"),
        ({"id": "s", "session": "x"}, "session_params"), ({"id": "s", 5: "x"}, "session_params"),
    ],
)  # fmt: skip
def test_bad_session_params(given: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        session_params(given)
    assert caught.value.param == param


def test_null_is_absent_and_what_sglangs_clients_send_is_taken() -> None:
    nulls = dict.fromkeys(("rid", "offset", "replace", "drop_previous_output"))
    assert session_params({"id": "s", **nulls}) == SessionParams(id="s")
    usual = {"id": "s", "rid": None, "offset": -1, "replace": True, "drop_previous_output": False}
    assert session_params(usual) == SessionParams(id="s", replace=True)


def test_an_offset_beyond_the_context(sessions: Sessions) -> None:
    one = sessions.open()
    refused(lambda: sessions.resume({"id": one, "offset": 1}), "session_params.offset", "empty")
    turn(sessions, one, "a", [1, 2], [3])
    assert len(sessions.resume({"id": one, "offset": 3}).context) == 3
    refused(lambda: sessions.resume({"id": one, "offset": 4}), "session_params.offset", "has 3 tokens")
    refused(
        lambda: sessions.resume({"id": one, "offset": 3, "drop_previous_output": True}),
        "session_params.offset",
        "has 2 tokens",
    )


class SessionMachine(RuleBasedStateMachine):
    """One session against a model that keeps every turn's whole context in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Sessions(ManualClock(), SessionLimits(sessions=1, tokens=10**6, timeout=1.0))
        self.id = self.store.open()
        # label -> (context before the answer, answer, parent's label); in the order of their beginning
        self.turns: dict[str, tuple[list[int], list[int], str | None]] = {}
        self.open: dict[str, tuple[Turn, list[int], str | None, dict[str, Any]]] = {}
        self.count = 0

    def below(self, label: str | None) -> set[str]:
        if label is None:
            return set(self.turns)
        found = {label}
        grew = True
        while grew:
            more = {one for one, (_, _, parent) in self.turns.items() if parent in found}
            grew = not more <= found
            found |= more
        return found - {label}

    @rule(
        data=st.data(),
        prompt=st.lists(st.integers(0, 99), min_size=1, max_size=4),
        replace=st.booleans(),
        drop=st.booleans(),
        cut=st.booleans(),
    )
    def begin(self, data: st.DataObject, prompt: list[int], replace: bool, drop: bool, cut: bool) -> None:
        rid = data.draw(st.sampled_from([None, *self.turns]))
        parents = {parent for _, _, parent, _ in self.open.values()}
        if replace and (rid is None or self.below(rid) & parents or rid in parents):
            return  # somebody runs there; the plain tests have it
        if rid is None and self.open:
            return
        base = next(reversed(self.turns), None) if rid is None else rid
        context: list[int] = []
        if base is not None:
            before, answer, _ = self.turns[base]
            context = before if drop else before + answer
        how: dict[str, Any] = {"rid": rid, "replace": replace, "drop_previous_output": drop}
        if cut and context:
            how["offset"] = data.draw(st.integers(1, len(context)))
            context = context[: how["offset"]]
        resumed = self.store.resume({"id": self.id, **how})
        assert list(resumed.context) == context
        self.count += 1
        label = f"t{self.count}"
        started = self.store.begin(resumed, label, prompt, 5)
        removed = {one: self.turns[one] for one in self.below(base)} if replace else {}
        for one in removed:
            del self.turns[one]
        self.open[label] = (started, context + prompt, base, removed)

    @rule(data=st.data(), answer=st.none() | st.lists(st.integers(0, 99), max_size=5))
    def end(self, data: st.DataObject, answer: list[int] | None) -> None:
        if not self.open:
            return
        label = data.draw(st.sampled_from(sorted(self.open)))
        started, context, parent, removed = self.open.pop(label)
        self.store.end(started, answer)
        if answer is None:
            self.turns.update(removed)
        else:
            self.turns[label] = (context, answer, parent)
        self.turns = dict(sorted(self.turns.items(), key=lambda item: int(item[0][1:])))

    @invariant()
    def same_turns(self) -> None:
        tree = self.store._sessions[self.id].tree
        assert set(tree.nodes) == set(self.turns) | set(self.open)
        for label, (before, answer, _) in self.turns.items():
            node = tree.nodes[label]
            assert node.context(node.length) == before + answer
            assert node.prompt_length == len(before)
        assert tree.open_turns == len(self.open)
        held = sum(len(node.own) for node in tree.nodes.values()) + 5 * len(self.open)
        assert tree.tokens == held
        linked = [*tree.roots.values(), *(child for node in tree.nodes.values() for child in node.children.values())]
        assert sorted(node.label for node in linked) == sorted(tree.nodes)


SessionMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
TestSessionMachine = SessionMachine.TestCase
