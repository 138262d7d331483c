from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import cached_property
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from jackfield.hookspecs import LIFECYCLE_HOOKS, ObserverContext, ProcessInfo, hookimpl
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.errors import PluginLoadError, PluginStop
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.runtime.observers import ObserverHub

RECEIVED = "jackfield_requests_received"
PROCESS = ProcessInfo(role="inline", pid=1, stack_hash="0")


def selected(name: str) -> SelectedPlugin:
    return SelectedPlugin(
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


def observer(name: str, **hooks: Callable[..., Any]) -> LoadedPlugin:
    made = SimpleNamespace(**{hook: hookimpl(function) for hook, function in hooks.items()})
    return provided(name, lambda: made)


def provided(name: str, make: Callable[..., Any]) -> LoadedPlugin:
    return LoadedPlugin(
        selected=selected(name),
        module=ModuleType("x"),
        options=None,
        hooks=MappingProxyType({"jackfield_observer": make}),
    )


def hub(*observers: LoadedPlugin, ledger: FaultLedger | None = None, **more: Any) -> ObserverHub:
    stack = ResolvedStack(plugins=tuple(plugin.selected for plugin in observers))
    return ObserverHub(LoadedStack(stack, "inline", observers), ledger or FaultLedger(), PROCESS, **more)


def test_nobody_listens() -> None:
    meter = Meter()
    empty = hub(meter=meter)
    assert not any(empty.listens(name) for name in LIFECYCLE_HOOKS)
    empty.notify(RECEIVED, requests=())
    assert meter.costs() == {}


def test_observers_are_called_in_stack_order_with_what_they_ask_for() -> None:
    heard: list[str] = []
    one = observer("one", jackfield_requests_received=lambda requests: heard.append(f"one {requests}"))
    two = observer("two", jackfield_requests_received=lambda: heard.append("two"))
    listening = hub(one, two)
    assert listening.listens(RECEIVED)
    assert not listening.listens("jackfield_requests_finished")
    listening.notify(RECEIVED, requests=(1,))
    assert heard == ["one (1,)", "two"]


class Counter:
    """An observer with a state of its own."""

    def __init__(self, context: ObserverContext) -> None:
        self.context = context
        self.heard: list[Any] = []

    @property
    def jackfield_requests_received(self) -> None:
        raise AssertionError("nobody may read a property to find the hooks")

    @cached_property
    def costly(self) -> None:
        raise AssertionError("nor this")

    @hookimpl
    def jackfield_process_started(self, process: ProcessInfo) -> None:
        self.heard.append(process)

    @hookimpl(specname="jackfield_requests_finished")
    def counted(self) -> None:
        self.heard.append(self.context.instance)


def test_each_use_is_an_object_of_its_own_made_with_its_context_and_started() -> None:
    made: list[Counter] = []

    def make(context: ObserverContext) -> Counter:
        made.append(Counter(context))
        return made[-1]

    listening = hub(provided("one", make), provided("two", make))
    assert [(one.context.name, one.context.process, one.context.prompt_text) for one in made] == [
        ("one", PROCESS, False),
        ("two", PROCESS, False),
    ]
    listening.started()
    listening.notify("jackfield_requests_finished", requests=())
    assert [one.heard for one in made] == [[PROCESS, "one"], [PROCESS, "two"]]
    assert not listening.listens(RECEIVED)


class _Broken:
    @hookimpl
    def jackfield_requests_finnished(self, requests: Any) -> None: ...

    def jackfield_requests_received(self, requests: Any) -> None: ...

    @hookimpl
    def jackfield_batch_scheduled(self, bath: Any) -> None: ...

    @hookimpl
    async def jackfield_batch_committed(self, record: Any) -> None: ...

    @hookimpl
    def jackfield_observer(self, context: Any) -> None: ...


def test_an_object_that_breaks_the_contract_is_told_all_that_is_wrong() -> None:
    with pytest.raises(PluginLoadError, match=r"observer plugin 'one' \(acme 1\) breaks the contract") as caught:
        hub(provided("one", _Broken))
    message = str(caught.value)
    assert "no lifecycle hook 'jackfield_requests_finnished'; did you mean 'jackfield_requests_finished'?" in message
    assert "jackfield_requests_received is not decorated with @hookimpl" in message
    assert "jackfield_batch_scheduled has the unknown argument 'bath'; did you mean 'batch'?" in message
    assert "jackfield_batch_committed is async" in message
    assert "no lifecycle hook 'jackfield_observer'" in message


def test_an_argument_may_be_keyword_only() -> None:
    heard: list[Any] = []

    def received(*, requests: Any) -> None:
        heard.append(requests)

    hub(observer("one", jackfield_requests_received=received)).notify(RECEIVED, requests=(1,))
    assert heard == [(1,)]


class _OfALaterMinor:
    @hookimpl
    def jackfield_requests_received(self, requests: Any) -> None: ...

    @hookimpl(optionalhook=True)
    def jackfield_requests_dreamt_of(self, dreams: Any) -> None: ...


@pytest.mark.goal_row(18)
def test_an_optional_hook_of_a_later_contract_is_passed_over() -> None:
    assert hub(provided("one", _OfALaterMinor)).listens(RECEIVED)


@pytest.mark.parametrize(
    ("made", "text"), [(None, "returned NoneType, not a builtins.object"), ("text", "a str hears nothing")]
)
def test_an_object_that_hears_nothing_is_refused(made: object, text: str) -> None:
    with pytest.raises(PluginLoadError, match=text):
        hub(provided("one", lambda: made))


def test_stopping_reaches_everybody() -> None:
    heard: list[ProcessInfo] = []
    hub(observer("one", jackfield_process_stopping=lambda process: heard.append(process))).stopping()
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
    listening.stopping()
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

    meter = Meter(timer=lambda: float(next(ticks)))
    listening = hub(
        observer("good", jackfield_requests_received=lambda requests: None),
        observer("bad", jackfield_requests_received=bad),
        meter=meter,
    )
    listening.notify(RECEIVED, requests=())
    listening.notify(RECEIVED, requests=())
    assert meter.costs() == {
        "observer.good": {RECEIVED: {"calls": 2.0, "seconds": 2.0, "exceptions": 0.0, "overruns": 0.0}},
        "observer.bad": {RECEIVED: {"calls": 2.0, "seconds": 2.0, "exceptions": 2.0, "overruns": 0.0}},
    }


def test_an_unknown_hook_is_the_cores_own_error() -> None:
    with pytest.raises(KeyError):
        hub().notify("jackfield_request_received")


@pytest.mark.goal_row(33)
def test_an_exit_is_a_fault_and_an_interrupt_is_the_users() -> None:
    heard: list[str] = []
    ledger = FaultLedger()

    def leaves(requests: Any) -> None:
        raise SystemExit(1)

    def hears(requests: Any) -> None:
        heard.append("requests")

    both = hub(
        observer("first", jackfield_requests_received=leaves),
        observer("second", jackfield_requests_received=hears),
        ledger=ledger,
    )
    both.notify(RECEIVED, requests=())
    assert heard == ["requests"]
    assert ledger.snapshot()["observer.first"]["last"] == "SystemExit: 1"

    def panics(requests: Any) -> None:
        raise asyncio.CancelledError("no time")

    hub(observer("third", jackfield_requests_received=panics), ledger=ledger).notify(RECEIVED, requests=())
    assert ledger.snapshot()["observer.third"]["last"] == "Foreign: CancelledError: no time"

    def interrupted(requests: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub(observer("first", jackfield_requests_received=interrupted), ledger=ledger).notify(RECEIVED, requests=())
    assert ledger.snapshot()["observer.first"]["count"] == 1
