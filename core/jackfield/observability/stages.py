"""Names of the stages that a request passes through (SGLang's names), and a stopwatch over them."""

from __future__ import annotations

import enum


class RequestStage(enum.Enum):
    """Where a request is. The five of the answer's `stage_times` are TOKENIZE, QUEUE, PREFILL, DECODE and DETOKENIZE;
    the inventory's finer ones are added when the parts that they measure exist."""

    TOKENIZE = "tokenize"
    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    DETOKENIZE = "detokenize"


class StageTimes:
    """Seconds by stage. Entering a stage ends the one before; stages may be entered again (after a retraction)."""

    __slots__ = ("_since", "_stage", "_total")

    def __init__(self) -> None:
        self._total: dict[RequestStage, float] = {}
        self._stage: RequestStage | None = None
        self._since = 0.0

    def enter(self, stage: RequestStage | None, now: float) -> None:
        """Now in `stage`; None: in none."""
        if self._stage is not None:
            self._total[self._stage] = self._total.get(self._stage, 0.0) + (now - self._since)
        self._stage = stage
        self._since = now

    def add(self, stage: RequestStage, seconds: float) -> None:
        self._total[stage] = self._total.get(stage, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        """Stage name -> seconds, closed stages only."""
        return {stage.value: total for stage, total in self._total.items()}
