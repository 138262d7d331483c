"""What a contract has deprecated, in simulated later versions of it: a warning for a minor version, then an error."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import KINDS, StepRecord, hookimpl
from jackfield.hookspecs.deprecations import DEPRECATIONS, ContractDeprecationWarning, Deprecation
from jackfield.stack.diagnosis.examination import _deprecations
from jackfield.stack.discovery.scan import discover
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading import deprecation
from jackfield.stack.report import row_report
from tests.unit.stack.distributions import POLICY, Site
from tests.unit.stack.test_loading import FIELDS, install, load
from tests.unit.stack.test_observers import hub, provided

ARGUMENT = Deprecation(
    kind="schedule_policy", subject="jackfield_schedule_policy(context)", since=(1, 1), instead="name `limits`"
)
HOOK = replace(ARGUMENT, subject="jackfield_schedule_policy", instead="implement `jackfield_policy`")
METHOD = replace(ARGUMENT, subject="SchedulePolicy.order", instead="override `ranks`")
UNUSED = replace(ARGUMENT, subject="SchedulePolicy.take", instead="override `share`")
FIELD = replace(ARGUMENT, subject="StepRecord.tenants", instead="read `who`")
LISTENER = Deprecation(
    kind="observer", subject="jackfield_requests_retracted(uids)", since=(1, 1), instead="name `who`"
)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets the table of deprecations and the core's contract version of policies and observers."""

    def at(minor: int, *rows: Deprecation) -> None:
        kinds = {
            **KINDS,
            **{name: replace(KINDS[name], contract=(1, minor)) for name in ("schedule_policy", "observer")},
        }
        monkeypatch.setattr(deprecation, "KINDS", MappingProxyType(kinds))
        monkeypatch.setattr(deprecation, "DEPRECATIONS", rows)
        deprecation._log_once.cache_clear()

    yield at
    for name in [name for name, value in vars(StepRecord).items() if isinstance(value, deprecation._Watched)]:
        delattr(StepRecord, name)


@pytest.mark.goal_row(16)
@pytest.mark.parametrize("row", [HOOK, ARGUMENT, METHOD])
def test_a_use_warns_for_a_minor_version_and_is_refused_after_it(
    live_site: Site, later: Any, row: Deprecation, caplog: pytest.LogCaptureFixture
) -> None:
    selected = install(live_site, POLICY)

    def made() -> Any:
        return load(selected).make("schedule_policy", **FIELDS)

    later(0, row, UNUSED)
    assert made() is not None
    assert not caplog.records
    later(1, row, UNUSED)
    for _ in range(3):
        with pytest.warns(ContractDeprecationWarning, match=r"'mine' \(acme-plugin 1\.2\)") as warned:
            made()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    told = f"{row.subject} is deprecated since the schedule_policy contract 1.1"
    assert record.message.endswith(f"{told} and will be gone in the next (this is 1.1): {row.instead}")
    assert warned[0].filename.endswith("mine.py")
    later(2, row, UNUSED)
    with pytest.raises(PluginLoadError) as refused:
        made()
    assert f"{told} and is gone (this is 1.2): {row.instead}" in str(refused.value)
    assert "'mine' (acme-plugin 1.2) uses what its contract has lost" in str(refused.value)


@pytest.mark.goal_row(16)
def test_a_plugin_that_does_not_use_it_hears_nothing(live_site: Site, later: Any) -> None:
    later(2, UNUSED, replace(ARGUMENT, kind="cache"), replace(ARGUMENT, subject="jackfield_schedule_policy(limits)"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(install(live_site, POLICY)).make("schedule_policy", **FIELDS) is not None


class Retracted:
    @hookimpl
    def jackfield_requests_retracted(self, uids: Any) -> None: ...


@pytest.mark.goal_row(16)
def test_a_lifecycle_hook_is_looked_at_when_the_observer_is_made(later: Any) -> None:
    later(1, LISTENER)
    with pytest.warns(
        ContractDeprecationWarning, match=r"observer plugin 'one' \(acme 1\): jackfield_requests_retracted\(uids\)"
    ):
        hub(provided("one", Retracted))
    later(2, LISTENER)
    with pytest.raises(PluginLoadError, match=r"jackfield_requests_retracted\(uids\) .* is gone"):
        hub(provided("one", Retracted))


@pytest.mark.goal_row(16)
def test_reading_a_field_warns_its_reader_and_is_an_error_after(later: Any, caplog: pytest.LogCaptureFixture) -> None:
    tenants = np.array([3], dtype=np.int32)
    later(1, FIELD)
    deprecation.watch_fields()
    deprecation.watch_fields()
    record = StepRecord(
        step=1, started=0.0, ended=1.0, uids=np.array([1]), tokens=np.array([1], dtype=np.int32), tenants=tenants
    )
    assert len(StepRecord(step=1, started=0.0, ended=1.0, uids=tenants, tokens=tenants).tokens) == 1
    for _ in range(2):
        with pytest.warns(ContractDeprecationWarning, match=r"StepRecord\.tenants is deprecated") as warned:
            assert record.tenants is tenants
    assert warned[0].filename == __file__
    assert [one.message.partition(":")[0] for one in caplog.records] == [__name__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asdict(replace(record, step=2))["tenants"].tolist() == [3]  # nobody's use
        assert record.tokens.tolist() == [1]
    later(2, FIELD)
    with pytest.raises(AttributeError, match=r"StepRecord\.tenants .* is gone \(this is 1\.2\): read `who`"):
        _ = record.tenants


@pytest.mark.goal_row(16)
def test_an_examination_tells_uses_without_making_the_plugin(live_site: Site, later: Any) -> None:
    plugin = load(install(live_site, POLICY)).plugin("schedule_policy")
    later(1, METHOD, ARGUMENT, UNUSED)
    found = _deprecations("schedule_policy", plugin.hooks, plugin.module)
    assert [text.partition(" ")[0] for text in found] == [ARGUMENT.subject, METHOD.subject]


@pytest.mark.goal_row(16)
def test_a_list_of_plugins_tells_what_their_files_seem_to_use_and_imports_none(live_site: Site, later: Any) -> None:
    source = POLICY + "raise RuntimeError('imported')\n\ndef seen(record):\n    return record.tenants\n"
    install(live_site, source)
    (row,) = discover([str(live_site.folder)]).find("schedule_policy", "mine")
    later(0, METHOD, ARGUMENT, HOOK, FIELD, UNUSED)
    assert row_report(row)["deprecations"] == []
    later(1, METHOD, ARGUMENT, HOOK, FIELD, UNUSED, replace(FIELD, subject="StepRecord.aborted"))
    told = row_report(row)["deprecations"]
    assert [text.partition(" ")[0] for text in told] == [one.subject for one in (METHOD, ARGUMENT, HOOK, FIELD)]


def test_every_row_of_the_table_names_something_that_is_there() -> None:
    from jackfield import hookspecs
    from jackfield.stack.loading.hooks import hook_table

    for row in DEPRECATIONS:
        name, _, argument = row.subject.rstrip(")").partition("(")
        owner, _, member = name.partition(".")
        assert row.kind in KINDS
        assert row.since <= KINDS[row.kind].contract
        if member:
            record = getattr(hookspecs, owner)
            assert hasattr(record, member) or member in record.__dataclass_fields__
        else:
            assert not argument or argument in hook_table()[name].parameters
