"""The questions that a scheduler asks a policy in one step, as calls; none of them may change anything."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import numpy as np

from jackfield.hookspecs import Amounts, Chosen, SchedulePolicy, SchedulerView
from jackfield.managers.scheduler.policy_guard import checked_rows
from jackfield.testing.conformance.policy_tables import MadeTable, made_view


def overrides(policy: SchedulePolicy, method: str) -> bool:
    """Whether the scheduler would call it."""
    return getattr(type(policy), method) is not getattr(SchedulePolicy, method)


def not_overridden(policy: SchedulePolicy, method: str) -> str:
    """That it would not be called, and what may have been meant to be it."""
    own = [name for name in dir(type(policy)) if not name.startswith("_") and not hasattr(SchedulePolicy, name)]
    meant = get_close_matches(method, own, n=1, cutoff=0.8)
    return f"{method} is not overridden" + (f"; {meant[0]!r} is never called by a run" if meant else "")


def questions(
    policy: SchedulePolicy, waiting: MadeTable, view: SchedulerView, seed: int
) -> dict[str, Callable[[], Any]]:
    """What is asked -> the call. view: as the core gives it to `order` and `take`."""
    running = view.running
    asked: dict[str, Callable[[], Any]] = {
        "budget": lambda: policy.budget(view),
        "order": lambda: policy.order(waiting, view),
    }
    if len(waiting) and overrides(policy, "take"):
        chosen = Chosen(rows=np.empty(0, dtype=np.intp), tokens=np.empty(0, dtype=np.int32))
        asked["take"] = lambda: policy.take(0, 16, waiting, chosen, view)
    if overrides(policy, "victims"):
        for_one = made_view(len(waiting), seed, waiting=waiting, running=running)
        if len(waiting):
            asked["victims for a waiting request"] = lambda: policy.victims(running, Amounts(slots=8), 0, for_one)
        asked["victims"] = lambda: policy.victims(running, Amounts(slots=8), None, view)
    return asked


def check_order(policy: SchedulePolicy, waiting: MadeTable, view: SchedulerView) -> None:
    """Raises BadPolicyAnswer, as the scheduler's guard does."""
    answer = policy.order(waiting, view)
    if answer is not None:
        checked_rows("order", answer, len(waiting))
