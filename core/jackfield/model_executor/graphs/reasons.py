"""Why a step runs without a graph, in words for the log and names for the numbers; how often, counted."""

from __future__ import annotations

import enum
import logging
from collections import Counter

from jackfield.hookspecs import WorkerContext, WorkerStack
from jackfield.hookspecs.common import GRAPH

logger = logging.getLogger(__name__)


class Reason(enum.Enum):
    """Of one step. The value is for the log."""

    PREFILL = "it has rows of several new tokens"
    ROWS = "it has more rows than the largest graph"
    PROMPT_LOGPROBS = "log-probabilities of a prompt are wanted of it"


def why_none(context: WorkerContext, stack: WorkerStack, *, records: bool, sizes: tuple[int, ...]) -> str:
    """Why no step of this run has a graph; "": some have."""
    if context.pooling is not None:
        return "a run that pools has no decode steps"
    if not records:
        return f"{context.device} has no recorded work"
    if not sizes:
        if not context.graph_rows:
            return "they are switched off"
        return f"at most {context.max_running} requests run at once, and the least wanted batch size is {min(context.graph_rows)}"
    name, _ = stack.attention["decode"]
    if GRAPH not in stack.attention_features.get("decode", frozenset()):
        return f'the attention plugin {name!r} does not declare the feature "graph"'
    if GRAPH not in stack.ops_features:
        return 'the ops plugin does not declare the feature "graph"'
    return ""


class Tally:
    """steps   those that replayed a graph"""

    def __init__(self) -> None:
        self.steps = 0
        self._without: Counter[Reason] = Counter()

    def without(self, reason: Reason) -> None:
        """A step that runs without; the first for its reason is logged."""
        if not self._without[reason]:
            logger.info("a step runs without a recorded graph, because %s; further ones are only counted", reason.value)
        self._without[reason] += 1

    def numbers(self) -> dict[str, int]:
        """Flat, for `ModelWorker.report`."""
        found = {f"eager_steps_{reason.name.lower()}": count for reason, count in list(self._without.items())}
        return {"graph_steps": self.steps, **found}
