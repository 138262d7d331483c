"""Logits processors with one fault each. The right one takes off what a row has had, by count."""

from __future__ import annotations

from typing import Any

from jackfield.hookspecs import LogitsProcessor, hookimpl

OWN, RETRACTED = "a_row_s_result_is_its_own", "a_retracted_row_goes_on_as_it_was"
SEVERAL, ENDS = "several_tokens_in_one_call", "a_row_that_ends_leaves_nothing"
CAUGHT = {
    "good": (),
    "looks-at-neighbours": (OWN, SEVERAL),
    "leaves-nan": ("logits_stay_usable", "*"),
    "forbids-all": ("logits_stay_usable",),
    "forgets-outputs": (RETRACTED,),
    "last-token-only": (SEVERAL,),
    "never-closes": (ENDS,),
    "first-row-is-zero": ("the_last_row_and_no_row",),
    "keeps-the-logits": ("it_keeps_no_tensor",),
    "one-for-all": ("two_processors_are_apart",),
}


class Good(LogitsProcessor):
    def __init__(self) -> None:
        self.had: dict[int, list[int]] = {}

    def opened(self, rows: Any) -> None:
        for row in rows:
            self.had[row.row] = row.history.tolist()

    def closed(self, rows: Any) -> None:
        for row in rows.tolist():
            self.had.pop(row)

    def tokens(self, rows: Any, ids: Any) -> None:
        for row, token in zip(rows.tolist(), ids.tolist(), strict=True):
            self.had[row].append(token)

    def apply(self, logits: Any, rows: Any, positions: Any) -> None:
        for i, row in enumerate(rows.tolist()):
            for token in self.had[row]:
                logits[i, token] -= 0.5


class LooksAtNeighbours(Good):
    def apply(self, logits: Any, rows: Any, positions: Any) -> None:
        super().apply(logits, rows, positions)
        logits -= logits.mean(dim=0) / 8


class LeavesNan(Good):
    def apply(self, logits: Any, rows: Any, positions: Any) -> None:
        super().apply(logits, rows, positions)
        logits[:, 60] = float("nan")


class ForbidsAll(Good):
    def apply(self, logits: Any, rows: Any, positions: Any) -> None:
        super().apply(logits, rows, positions)
        logits[:] = float("-inf")


class ForgetsOutputs(Good):
    def opened(self, rows: Any) -> None:
        for row in rows:
            self.had[row.row] = row.history[: len(row.history) - row.outputs].tolist()


class LastTokenOnly(Good):
    def tokens(self, rows: Any, ids: Any) -> None:
        for row, token in dict(zip(rows.tolist(), ids.tolist(), strict=True)).items():
            self.had[row].append(token)


class NeverCloses(Good):
    def opened(self, rows: Any) -> None:
        for row in rows:
            self.had.setdefault(row.row, []).extend(row.history.tolist())

    def closed(self, rows: Any) -> None:
        pass


class FirstRowIsZero(Good):
    def closed(self, rows: Any) -> None:
        assert rows[0] >= 0
        super().closed(rows)


class KeepsTheLogits(Good):
    def apply(self, logits: Any, rows: Any, positions: Any) -> None:
        super().apply(logits, rows, positions)
        self.last = logits


class OneForAll(Good):
    shared: dict[int, list[int]] = {}  # noqa: RUF012  the fault

    def tokens(self, rows: Any, ids: Any) -> None:
        super().tokens(rows, ids)
        self.shared.update({row: had for row, had in self.had.items() if had[-1] == 9 and len(had) == 15})

    def apply(self, logits: Any, rows: Any, positions: Any) -> None:
        own, self.had = self.had, self.had | {row: had for row, had in self.shared.items() if row in self.had}
        super().apply(logits, rows, positions)
        self.had = own


@hookimpl
def jackfield_logits_processor(context: Any) -> LogitsProcessor:
    made: LogitsProcessor = globals()[context.name.replace("-", " ").title().replace(" ", "")]()
    return made
