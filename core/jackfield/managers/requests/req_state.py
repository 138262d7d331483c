"""What the main process knows of one live request: what came back so far, and when things happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.ipc.messages import FinishReason, SamplingParams, TextOutput
from jackfield.managers.logprobs.entries import LogprobLog
from jackfield.managers.logprobs.native import TokenText, native_logprobs
from jackfield.managers.sessions.sessions import Turn
from jackfield.observability.stages import RequestStage, StageTimes


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What goes with an answer beside it.

    prompt_ids       given with the complete answer; None: not asked for
    metrics          whether it counts in the metrics of the main process
    weight_version   what the operator calls the weights
    """

    prompt_ids: Sequence[int] | None = None
    metrics: bool = True
    weight_version: str = "default"


class ReqState:
    """From submission until the scheduler has let go of the request.

    rid          the runtime's own id; `label` is the id that the client gave, or the same
    index        position among the call's answers: prompt i's choice j of n has i * n + j
    choice       which of its prompt's answers it is; usage counts a prompt with its first
    call_label   the id of all choices of the prompt; the same as `label` if there is one
    finish       set when the answer is complete; `closed` when the scheduler holds nothing of it any more
    stack        epoch and hash of the stack that decided the step with which it ended, when it is `closed`
    turn         its turn of a session, if it is one
    pooled       in a run that pools: float32, little-endian, when it ended well
    told         the complete answer was given to whoever streams it
    tier_tokens  KV tier -> how many of `cached_tokens` it had kept, when it is `closed`
    wishes       what the client wants told, and is told, beside the answer
    logprobs     what came of log-probabilities; None: not asked for. token_text: a token alone as text, where the native
                 answer is to name tokens by text
    last_token_at   when its newest tokens came, kept by `RequestMetrics`
    """

    def __init__(
        self,
        *,
        rid: str,
        label: str,
        index: int,
        prompt_tokens: int,
        sampling: SamplingParams,
        stream: bool,
        now: float,
        choice: int = 0,
        call_label: str | None = None,
        logprobs: LogprobLog | None = None,
        token_text: TokenText | None = None,
        wishes: Wishes = Wishes(),
    ) -> None:
        self.rid = rid
        self.label = label
        self.index = index
        self.choice = choice
        self.call_label = label if call_label is None else call_label
        self.prompt_tokens = prompt_tokens
        self.sampling = sampling
        self.stream = stream
        self.received_at = now
        self.finished_at: float | None = None
        self.last_token_at: float | None = None
        self.times = StageTimes()
        self.finish: FinishReason | None = None
        self.closed = False
        self.abort_sent = False
        self.told = False
        self.turn: Turn | None = None
        self.stack: tuple[int, str] | None = None
        self.wishes = wishes
        self.cached_tokens = 0
        self.tier_tokens: dict[str, int] = {}
        self.retractions = 0
        self.pooled = b""
        self.output_ids: list[int] = []
        self.logprobs = logprobs
        self.token_text = token_text
        self._entries_read = 0
        self._text = ""
        self._parts: list[str] = []
        self._unread: list[str] = []
        self._ids_read = 0
        self._ids_told = 0

    @property
    def names(self) -> set[str]:
        """The ids by which a client may speak of it."""
        return {self.label, self.call_label}

    @property
    def own_names(self) -> set[str]:
        """As `names`; the one that choices have in common is the first one's."""
        return self.names if self.choice == 0 else {self.label}

    @property
    def text(self) -> str:
        """All of it so far. Joined lazily: a stream that reads deltas only never pays for it."""
        if self._parts:
            self._text += "".join(self._parts)
            self._parts.clear()
        return self._text

    def delta(self) -> tuple[str, list[int]]:
        """Text and ids that came since the last `delta`."""
        text, self._unread = "".join(self._unread), []
        ids, self._ids_read = self.output_ids[self._ids_read :], len(self.output_ids)
        return text, ids

    def new_entries(self) -> int:
        """The output token from which on log-probabilities came since the last time; with an answer that has none, 0."""
        begin = self._entries_read
        self._entries_read = 0 if self.logprobs is None else len(self.logprobs)
        return begin

    def logprobs_since(self, begin: int) -> dict[str, Any]:
        """The native answer's fields of output tokens from `begin` on; the prompt's come with the first."""
        return {} if self.logprobs is None else native_logprobs(self.logprobs, self.token_text, begin)

    @property
    def failed(self) -> bool:
        """It ended in an error, and not by an operator's abort."""
        return self.finish is not None and self.finish.type == "abort" and self.finish.status_code is not None

    @property
    def has_news(self) -> bool:
        """True if something came since the last `answer`; the end counts until it was told."""
        return not self.told and (len(self.output_ids) > self._ids_told or self.finish is not None)

    def take(self, output: TextOutput, now: float) -> None:
        """Apply the detokenizer's entry."""
        if self.finish is None:
            if output.text:
                self._parts.append(output.text)
                self._unread.append(output.text)
            self.output_ids.extend(output.ids)
            if self.logprobs is not None:
                self.logprobs.take(output)
            if output.finish is not None:
                self.finish = output.finish
                self.finished_at = now
            self.pooled = output.pooled
        if output.closed:
            self.closed = True
            self.cached_tokens = output.cached_tokens
            self.tier_tokens = output.tier_tokens
            self.retractions = output.retractions
        for stage, seconds in output.stage_times.items():
            self.times.add(RequestStage(stage), seconds)

    def answer(self) -> dict[str, Any]:
        """The answer so far, in the shape of SGLang's `/generate`: text and ids are cumulative."""
        self._ids_told = len(self.output_ids)
        answer = {"text": self.text, "output_ids": list(self.output_ids), "meta_info": self.meta_info()}
        if self.wishes.prompt_ids is not None and self.finish is not None:
            answer["prompt_token_ids"] = list(self.wishes.prompt_ids)
        return answer

    def meta_info(self, entries_from: int = 0) -> dict[str, Any]:
        """Counts, finish reason and, at the end, times. entries_from: the first output token whose log-probabilities are
        told; the prompt's are told with token 0."""
        meta: dict[str, Any] = {
            "id": self.label,
            "finish_reason": finish_reason_json(self.finish),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": len(self.output_ids),
            "cached_tokens": self.cached_tokens,
            "num_retractions": self.retractions,
            "weight_version": self.wishes.weight_version,
            **self.logprobs_since(entries_from),
        }
        if self.finished_at is not None:
            meta["e2e_latency"] = self.finished_at - self.received_at
            seconds = self.times.seconds()
            if self.stack is not None:
                meta["stack_epoch"], meta["stack_hash"] = self.stack
            from_tiers = sum(self.tier_tokens.values())
            meta["cached_tokens_details"] = {"device": self.cached_tokens - from_tiers, **self.tier_tokens}
            meta["queue_time"] = seconds.get(RequestStage.QUEUE.value, 0.0)
            meta["stage_times"] = {stage.value: seconds.get(stage.value, 0.0) for stage in RequestStage}
        return meta


def finish_type(finish: FinishReason | None) -> str:
    """ "stop", "length", "abort" or "error": an abort with a status is an error."""
    if finish is None:
        return "error"
    return "error" if finish.type == "abort" and finish.status_code is not None else finish.type


def finish_reason_json(finish: FinishReason | None) -> dict[str, Any] | None:
    """As clients see it: {"type": "stop", "matched"}, {"type": "length", "length"} or {"type": "abort", "message", ...}."""
    if finish is None:
        return None
    if finish.type == "stop":
        return {"type": "stop", "matched": finish.matched}
    if finish.type == "length":
        return {"type": "length", "length": finish.length}
    told: dict[str, Any] = {"type": finish.type, "message": finish.message or "the request was aborted"}
    if finish.status_code is not None:
        told["status_code"] = finish.status_code
    if finish.err_type is not None:
        told["err_type"] = finish.err_type
    return told
