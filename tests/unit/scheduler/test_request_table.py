from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jackfield.hookspecs import RequestTable
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.table import COLUMNS, PUBLIC_COLUMNS, ColumnTable


def row_of(uid: int) -> dict[str, Any]:
    """Every column derived from the uid, so that a column out of step shows."""
    return {
        name: f"request {uid}" if dtype is np.object_ else uid % 2 == 0 if dtype is np.bool_ else uid + i
        for i, (name, dtype) in enumerate(COLUMNS.items())
    }


class TableMachine(RuleBasedStateMachine):
    """Two tables against two lists."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [ColumnTable(1), ColumnTable(1)]
        self.models: list[list[int]] = [[], []]
        self.uid = 0

    @rule(which=st.integers(0, 1))
    def append(self, which: int) -> None:
        self.uid += 1
        assert self.tables[which].append(row_of(self.uid)) == len(self.models[which])
        self.models[which].append(self.uid)

    @rule(which=st.integers(0, 1), data=st.data())
    def drop(self, which: int, data: st.DataObject) -> None:
        rows = self._some(which, data)
        self.tables[which].drop(np.array(rows, dtype=np.intp))
        self.models[which] = [uid for i, uid in enumerate(self.models[which]) if i not in rows]

    @rule(which=st.integers(0, 1), data=st.data())
    def move(self, which: int, data: st.DataObject) -> None:
        rows = self._some(which, data)
        self.tables[1 - which].extend(self.tables[which].take(np.array(rows, dtype=np.intp)))
        self.models[1 - which] += [self.models[which][i] for i in rows]
        self.models[which] = [uid for i, uid in enumerate(self.models[which]) if i not in rows]

    def _some(self, which: int, data: st.DataObject) -> list[int]:
        count = len(self.models[which])
        return data.draw(st.permutations(range(count)))[: data.draw(st.integers(0, count))]

    @invariant()
    def all_columns_are_in_step(self) -> None:
        for table, model in zip(self.tables, self.models, strict=True):
            assert len(table) == len(model)
            expected = [row_of(uid) for uid in model]
            for name in COLUMNS:
                assert table[name].tolist() == [row[name] for row in expected]


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_the_view_offers_the_contracts_columns_read_only() -> None:
    table = ColumnTable()
    table.append(row_of(7))
    view: RequestTable = table.view
    contract = {name for name, value in vars(RequestTable).items() if isinstance(value, property)}
    assert contract == set(PUBLIC_COLUMNS)
    assert len(view) == 1
    for name in PUBLIC_COLUMNS:
        column = getattr(view, name)
        assert column.dtype == COLUMNS[name]
        assert column.tolist() == table[name].tolist()
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_a_dropped_request_does_not_live_on_in_the_table() -> None:
    import gc
    import weakref

    class Thing:
        pass

    table, thing = ColumnTable(), Thing()
    gone = weakref.ref(thing)
    table.append({"request": thing})
    table.drop(np.array([0]))
    del thing
    gc.collect()
    assert gone() is None


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        ColumnTable().append({"colour": 1})


def test_a_reused_row_is_not_taken_for_the_one_before() -> None:
    table = RunningTable(4)
    table.append({"uid": 1, "row": 2})
    table.append({"uid": 2, "row": 3})
    table.reindex()
    table.drop(np.array([0]))
    table.append({"uid": 9, "row": 2})
    table.reindex()
    position, alive = table.locate(np.array([2, 3, 1], dtype=np.int32), np.array([1, 2, 5]))
    assert alive.tolist() == [False, True, False]
    assert position[1] == 0
