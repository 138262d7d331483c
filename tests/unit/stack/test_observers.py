from __future__ import annotations

import itertools
from collections.abc import Callable
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

from jackfield.hookspecs import LIFECYCLE_HOOKS, ObserverContext, ProcessInfo
from jackfield.stack.errors import PluginStop
from jackfield.stack.faults import FaultLedger
from jackfield.stack.loading import LoadedPlugin, LoadedStack
from jackfield.stack.manifest import ManifestRow
from jackfield.stack.observers import ObserverHub
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin

RECEIVED = "jackfield_requests_received"
PROCESS = ProcessInfo(role="inline", pid=1, stack_hash="0")


def observer(name: str, **hooks: Callable[..., Any]) -> LoadedPlugin:
    selected = SelectedPlugin(
        kind="observer",
        name=name,
        instance=name,
        distribution="acme",
        version="1",
        package="acme",
        module="acme.x",
        manifest=ManifestRow(kind="observer", name=name),
        reason="",
    )
    return LoadedPlugin(selected=selected, module=ModuleType("x"), options=None, hooks=MappingProxyType(hooks))


def hub(*observers: LoadedPlugin, ledger: FaultLedger | None = None, **more: Any) -> ObserverHub:
    stack = ResolvedStack(plugins=tuple(plugin.selected for plugin in observers))
    return ObserverHub(LoadedStack(stack, "inline", observers), ledger or FaultLedger(), **more)


def test_nobody_listens() -> None:
    empty = hub()
    assert not any(empty.listens(name) for name in LIFECYCLE_HOOKS)
    empty.notify(RECEIVED, requests=())
    assert empty.timings() == {}


def test_observers_are_called_in_stack_order_with_what_they_ask_for() -> None:
    heard: list[str] = []
    one = observer("one", jackfield_requests_received=lambda requests: heard.append(f"one {requests}"))
    two = observer("two", jackfield_requests_received=lambda: heard.append("two"))
    listening = hub(one, two)
    assert listening.listens(RECEIVED)
    assert not listening.listens("jackfield_requests_finished")
    listening.notify(RECEIVED, requests=(1,))
    assert heard == ["one (1,)", "two"]


def test_each_observer_is_started_with_its_own_context() -> None:
    contexts: list[ObserverContext] = []
    listening = hub(
        observer("one", jackfield_process_started=lambda context: contexts.append(context)),
        observer("two", jackfield_process_started=lambda context: contexts.append(context)),
    )
    listening.started(PROCESS)
    assert [(context.name, context.process, context.prompt_text) for context in contexts] == [
        ("one", PROCESS, False),
        ("two", PROCESS, False),
    ]


def test_stopping_reaches_everybody() -> None:
    heard: list[ProcessInfo] = []
    hub(observer("one", jackfield_process_stopping=lambda process: heard.append(process))).stopping(PROCESS)
    assert heard == [PROCESS]


def test_a_quarantined_observer_is_told_of_the_end_so_that_it_can_close() -> None:
    heard: list[ProcessInfo] = []

    def bad(requests: Any) -> None:
        raise ValueError("no")

    stopping: Any = lambda process: heard.append(process)  # noqa: E731
    ledger = FaultLedger(limit=1)
    listening = hub(
        observer("bad", jackfield_requests_received=bad, jackfield_process_stopping=stopping), ledger=ledger
    )
    listening.notify(RECEIVED, requests=())
    assert ledger.quarantined("observer.bad")
    listening.stopping(PROCESS)
    assert heard == [PROCESS]


def test_a_failing_observer_is_switched_off_at_the_limit_and_the_others_go_on() -> None:
    calls = {"bad": 0, "good": 0}

    def bad(requests: Any) -> None:
        calls["bad"] += 1
        raise ValueError("no")

    def good(requests: Any) -> None:
        calls["good"] += 1

    ledger = FaultLedger(limit=3)
    listening = hub(
        observer("bad", jackfield_requests_received=bad, jackfield_requests_finished=lambda requests: None),
        observer("good", jackfield_requests_received=good),
        ledger=ledger,
    )
    for _ in range(5):
        listening.notify(RECEIVED, requests=())
    assert calls == {"bad": 3, "good": 5}
    assert ledger.quarantined("observer.bad")
    assert not listening.listens("jackfield_requests_finished")


def test_mode_raise_lets_the_stop_through() -> None:
    def bad(requests: Any) -> None:
        raise ValueError("no")

    with pytest.raises(PluginStop):
        hub(observer("bad", jackfield_requests_received=bad), ledger=FaultLedger(mode="raise")).notify(
            RECEIVED, requests=()
        )


def test_the_time_spent_is_booked_by_plugin_and_hook_also_when_it_fails() -> None:
    ticks = itertools.count()

    def bad(requests: Any) -> None:
        raise ValueError("no")

    listening = hub(
        observer("good", jackfield_requests_received=lambda requests: None),
        observer("bad", jackfield_requests_received=bad),
        timer=lambda: float(next(ticks)),
    )
    listening.notify(RECEIVED, requests=())
    listening.notify(RECEIVED, requests=())
    assert listening.timings() == {
        "observer.good": {RECEIVED: {"calls": 2.0, "seconds": 2.0}},
        "observer.bad": {RECEIVED: {"calls": 2.0, "seconds": 2.0}},
    }


def test_an_unknown_hook_is_the_cores_own_error() -> None:
    with pytest.raises(KeyError):
        hub().notify("jackfield_request_received")
