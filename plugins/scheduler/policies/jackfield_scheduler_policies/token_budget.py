"""Schedule policy `token-budget`: stall-free batches, as in Sarathi-Serve (Agrawal et al., 2024). A step holds all decodes and
fills up with prompt tokens to a fixed number, so that a long prompt is cut and never stops the others' streams.

Order is arrival. `step_tokens` trades the time of a step, which is the gap between two streamed tokens, against the time
to the first token.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import (
    DecodeTurn,
    PolicyContext,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    StepRecord,
    hookimpl,
)
from jackfield_scheduler_policies.options import options_of


class TokenBudgetOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    step_tokens: int = Field(512, ge=1, description="Most tokens in a step, prompts and decodes together.")
    min_prefill: int = Field(
        16, ge=1, description="Prompt tokens allowed in a step that decodes fill, so that prompts never stand still."
    )
    partial_prefills: int = Field(1, ge=1, description="Prompts that may be cut at one time.")


class TokenBudget(SchedulePolicy):
    """The next step's decodes are counted from the last record, because the view does not tell: whoever was in that step
    and has not ended decodes, or goes on with its prompt. With one step in flight that is never too few."""

    def __init__(self, options: TokenBudgetOptions) -> None:
        self.options = options
        self._decoding = 0

    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
        self._decoding = len(running)

    def budget(self, view: SchedulerView) -> StepBudget:
        options = self.options
        return StepBudget(
            prefill_tokens=max(options.step_tokens - self._decoding, options.min_prefill),
            decode=DecodeTurn.MIX,
            partial_prefills=options.partial_prefills,
        )

    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        return None

    def observe(self, record: StepRecord) -> None:
        self._decoding = max(0, len(record.uids) - len(record.finished) - len(record.retracted))


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return TokenBudget(options_of(context, TokenBudgetOptions))
