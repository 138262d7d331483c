"""The public contract is what is recorded of its version, and whoever changes it must say so with the version."""

from __future__ import annotations

import enum
import inspect
from dataclasses import dataclass, fields, make_dataclass
from typing import Any

import pytest

from jackfield import hookspecs
from jackfield.hookspecs import KINDS, AttentionBackend, KVTensorSpec, StepBudget, WaitReason
from jackfield.hookspecs.attention import AttentionBatch
from tests.contract.changes import changes, problems
from tests.contract.facts import NOT_OF_PLUGINS, Facts, facts_of, read, written
from tests.contract.record import FOLDER, recorded


@pytest.mark.goal_row(17)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_contract_of_each_kind_is_the_recorded_one(kind: str) -> None:
    found = problems(KINDS[kind].contract, facts_of(kind), recorded(kind))
    assert not found, (
        f"{kind}: {found}. docs/versioning.md says what to do; `python -m tests.contract.record` records a version"
    )


def test_nothing_is_recorded_of_kinds_that_are_not() -> None:
    assert {file.stem.rpartition("-")[0] for file in FOLDER.iterdir()} == set(KINDS)


OLD: Facts = {
    "Batch": "record",
    "Batch.size": "field int",
    "Batch.exact": "field bool = True",
    "Mode": "enum",
    "Mode.ONE": "member 'one'",
    "Policy": "base ABC",
    "Policy.order": "required method (waiting: Table, view: View) -> Rows | None",
    "Policy.take": "method (row: int, most: int) -> int",
    "Table": "protocol",
    "Table.row": "function (uid: int, *, strict: bool = True) -> int",
    "Table.uid": "property NDArray[np.int64]",
    "HOLD": "constant -1",
    "manifest": "keys",
    "manifest.summary": "required key a text",
    "code": "function (tenant: str | None) -> int",
    "jackfield_policy": "hook (context: Context) -> Policy",
    "jackfield_seen": "hook (batch: Batch) -> None",
}


def after(**changed: str | None) -> Facts:
    """`OLD` with some facts replaced, added, or (None) taken away. Two underscores stand for a dot."""
    new = OLD | {subject.replace("__", "."): fact for subject, fact in changed.items() if fact is not None}
    return {subject: fact for subject, fact in new.items() if changed.get(subject.replace(".", "__"), "") is not None}


ADDITIVE = {
    "a field with a default": after(Batch__mask="field Mask | None = None"),
    "a default for a field that had none": after(Batch__size="field int = 1"),
    "a record": after(Shape="record", Shape__rows="field int"),
    "a method with a body": after(Policy__close="method () -> None"),
    "a required method that need not be any more": after(
        Policy__order="method (waiting: Table, view: View) -> Rows | None"
    ),
    "a column": after(Table__weight="property NDArray[np.float64]"),
    "a member of an enum": after(Mode__TWO="member 'two'"),
    "an argument of a hook": after(jackfield_policy="hook (context: Context, shape: Shape) -> Policy"),
    "an argument of a hook, in front": after(jackfield_policy="hook (shape: Shape, context: Context) -> Policy"),
    "a hook": after(jackfield_heard="hook (batch: Batch) -> None"),
    "a keyword of what plugins call": after(
        Table__row="function (uid: int, *, strict: bool = True, past: bool = False) -> int"
    ),
    "an optional argument of a function": after(code="function (tenant: str | None, salt: bytes = b'') -> int"),
    "a constant": after(SKIP="constant -2"),
    "a key of the manifest": after(manifest__core="key a range"),
    "a key that may be left out now": after(manifest__summary="key a text"),
}
BREAKING = {
    "a field without a default": after(Batch__mask="field Mask"),
    "a field that is gone": after(Batch__exact=None),
    "another type": after(Batch__size="field float"),
    "another default": after(Batch__exact="field bool = False"),
    "no default any more": after(Batch__exact="field bool"),
    "a record that is not frozen": after(Batch="open record"),
    "a required method": after(Policy__close="required method () -> None"),
    "a method that is required now": after(Policy__take="required method (row: int, most: int) -> int"),
    "a method that is gone": after(Policy__take=None),
    "an argument of a method": after(Policy__take="method (row: int, most: int, view: View) -> int"),
    "an optional argument of a method": after(
        Policy__take="method (row: int, most: int, view: View | None = None) -> int"
    ),
    "an argument's other name": after(Policy__take="method (row: int, limit: int) -> int"),
    "another answer": after(Policy__take="method (row: int, most: int) -> int | None"),
    "a key that must be written": after(manifest__core="required key a range"),
    "a key that is gone": after(manifest__summary=None),
    "a column's other type": after(Table__uid="property NDArray[np.int32]"),
    "an enum's other value": after(Mode__ONE="member 'uno'"),
    "a member that is gone": after(Mode__ONE=None),
    "another value of a constant": after(HOLD="constant -3"),
    "a hook that is gone": after(jackfield_seen=None),
    "a hook's argument that is gone": after(jackfield_seen="hook () -> None"),
    "a hook's argument by another name": after(jackfield_seen="hook (bath: Batch) -> None"),
    "a hook's argument of another type": after(jackfield_seen="hook (batch: Shape) -> None"),
    "a hook's other answer": after(jackfield_policy="hook (context: Context) -> object"),
    "a hook that became a function": after(jackfield_seen="function (batch: Batch) -> None"),
    "a required argument of a function": after(code="function (tenant: str | None, salt: bytes) -> int"),
    "an argument that became a keyword": after(Table__row="function (*, uid: int, strict: bool = True) -> int"),
    "a new argument of a function before the old ones": after(
        code="function (salt: bytes = b'', tenant: str | None = None) -> int"
    ),
}


@pytest.mark.goal_row(17)
@pytest.mark.parametrize("what", ADDITIVE)
def test_an_addition_needs_a_minor_version(what: str) -> None:
    new = ADDITIVE[what]
    assert changes(OLD, new)
    assert all(change.additive for change in changes(OLD, new)), changes(OLD, new)
    (told,) = problems((1, 0), new, {(1, 0): OLD})
    assert told.startswith("1.0 is frozen and differs, which needs version 1.1: ")
    assert problems((1, 1), new, {(1, 0): OLD}) == ["1.1 is not recorded"]
    assert problems((1, 1), new, {(1, 0): OLD, (1, 1): new}) == []


@pytest.mark.goal_row(17)
@pytest.mark.parametrize("what", BREAKING)
def test_anything_else_needs_a_major_version(what: str) -> None:
    new = BREAKING[what]
    assert not all(change.additive for change in changes(OLD, new))
    (told,) = problems((1, 3), new, {(1, 3): OLD})
    assert told.startswith("1.3 is frozen and differs, which needs version 2.0: ")
    assert "is a minor step, and needs a major one" in problems((1, 4), new, {(1, 3): OLD})[0]
    assert "is a minor step, and needs a major one" in problems((1, 4), new, {(1, 3): OLD, (1, 4): new})[0]
    assert problems((2, 0), new, {(1, 3): OLD, (2, 0): new}) == []


def test_below_one_a_version_may_be_recorded_anew_and_must_be() -> None:
    new = after(Batch__exact=None)
    assert problems((0, 1), new, {(0, 1): OLD}) == ["the contract is not what is recorded of 0.1: Batch.exact is gone"]
    assert problems((0, 2), new, {(0, 1): OLD, (0, 2): new}) == []


def test_a_version_cannot_go_back_and_must_be_recorded() -> None:
    assert problems((1, 0), OLD, {(1, 0): OLD, (1, 1): OLD}) == ["the contract says 1.0, but 1.1 is recorded"]
    assert problems((1, 0), OLD, {}) == ["nothing is recorded of 1.0"]


@pytest.mark.goal_row(17)
def test_a_change_of_a_real_record_is_seen_by_every_kind_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Grown(AttentionBatch):
        graph: str | None = None

    Grown.__name__, Grown.__module__ = AttentionBatch.__name__, AttentionBatch.__module__
    before = facts_of("attention")
    monkeypatch.setattr("jackfield.hookspecs.AttentionBatch", Grown)
    differs = {change.text: change.additive for change in changes(before, facts_of("attention"))}
    assert differs["AttentionBatch.graph is new: `field str | None = None`"]


def grown(record: type, *, kw_only: bool = True, **more: tuple[Any, Any]) -> type:
    """The record with further fields and their defaults, in its place."""
    added = [(name, kind, default) for name, (kind, default) in more.items()]
    made = make_dataclass(record.__name__, added, bases=(record,), frozen=True, kw_only=kw_only)
    made.__module__ = record.__module__
    return made


def differs_with(monkeypatch: pytest.MonkeyPatch, kind: str, name: str, value: Any) -> dict[str, bool]:
    """Change -> whether it is additive, of a kind in whose contract `name` is something else."""
    before = facts_of(kind)
    monkeypatch.setattr(hookspecs, name, value)
    return {change.text: change.additive for change in changes(before, facts_of(kind))}


def test_constants_do_not_change_when_their_record_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    before, larger, layout = facts_of("attention"), grown(KVTensorSpec, align=("int", 1)), hookspecs.NHD_PAGED
    tensors = tuple(larger(role=one.role, shape=one.shape) for one in layout.tensors)
    monkeypatch.setattr(hookspecs, "NHD_PAGED", type(layout)(name=layout.name, tensors=tensors))
    assert facts_of("attention")["NHD_PAGED"] == before["NHD_PAGED"]


def test_what_stands_by_place_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record of a contract is made by place, so that the order of its fields means nothing."""
    assert not [fact for kind in KINDS for fact in facts_of(kind).values() if "by place" in fact]
    placed = grown(StepBudget, kw_only=False, more=("int", 1))
    differs = differs_with(monkeypatch, "schedule_policy", "StepBudget", placed)
    assert not all(differs.values()), differs


def test_what_an_enum_is_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    members = {member.name: member.value for member in WaitReason}
    text = enum.Enum("WaitReason", members, type=str, module=WaitReason.__module__)
    assert differs_with(monkeypatch, "observer", "WaitReason", text)["WaitReason was `enum` and is `enum str`"] is False


def test_words_alone_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = facts_of("attention")
    for thing in (AttentionBackend, AttentionBackend.plan):
        monkeypatch.setattr(thing, "__doc__", "Something else.")
    assert changes(before, facts_of("attention")) == []


def test_where_a_plugin_lives_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    before = facts_of("metrics")
    monkeypatch.setattr("tests.contract.facts.KINDS", {**KINDS, "metrics": KINDS["observer"]})
    told = {change.text: change.additive for change in changes(before, facts_of("metrics"))}
    assert told["kind.processes was `main` and is `main, scheduler, detokenizer`"] is False


def test_everything_that_is_offered_is_a_fact_of_some_kind() -> None:
    known = {subject.partition(".")[0] for kind in KINDS for subject in facts_of(kind)}
    offered = {
        name
        for name in hookspecs.__all__
        if not name.endswith("Specs") and not inspect.ismodule(getattr(hookspecs, name))
    }
    assert offered - known - NOT_OF_PLUGINS == {"hookimpl", "hookspec"}


def test_shared_records_are_facts_of_each_kind_that_uses_them() -> None:
    assert "StepRecord.tokens" in facts_of("schedule_policy").keys() & facts_of("observer").keys()
    assert "KVGroup.window" in facts_of("attention").keys() & facts_of("model").keys()
    assert "CacheEvent.tokens" in facts_of("observer")
    assert not [subject for subject in facts_of("model") if subject.startswith(("Ops", "PreAttention"))]


def test_every_field_of_a_record_is_a_fact_and_text_keeps_all() -> None:
    facts = facts_of("attention")
    assert {f"AttentionBatch.{field.name}" for field in fields(AttentionBatch)} <= facts.keys()
    for kind in KINDS:
        assert read(written(facts_of(kind))) == facts_of(kind)
