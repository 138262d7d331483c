"""What one scheduler is told at start. Knows no ServerArgs: who builds a scheduler derives these from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jackfield.hookspecs import Pooling, WorkerLimits
from jackfield.managers.scheduler.window import most_held

CheckInvariants = Literal["off", "idle", "step"]


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """Limits and choices of one replica. Lengths in tokens.

    context_length        longest sequence, prompt and computed outputs together
    max_running_requests  most requests that hold a row at once
    max_queued_requests   most waiting requests; None: no limit. One more is refused with 503
    max_prefill_tokens    most prompt tokens in one step
    chunked_prefill_size  most tokens of one prompt in one step, whole pages; None: max_prefill_tokens. -1: a prompt is never cut,
                          and one longer than max_prefill_tokens is the only one in its step
    max_consecutive_prefills   steps of prompts alone that may follow each other while somebody could decode, under
                          `DecodeTurn.AFTER`; then comes a step of decodes
    schedule_conservativeness   how much of the outputs to come is reserved at admission, > 0: see `NewTokenRatio`
    request_waiting_timeout   seconds after its arrival in which a request must first run, else it ends with 503; None: no limit
    request_running_timeout   seconds after its first admission in which it must end, retractions included, else it ends with
                          503; None: no limit
    pooling               what the run gives of each prompt, and no tokens; None: it generates
    max_skips             steps in which a waiting request may be overtaken or passed over; then it goes first
    hold_back_tokens      a request waits for a running prefill that shares at least this many uncached tokens; 0: never
    eos_token_ids         the model's end tokens
    seed                  the run's seed: per-request seeds that the client left open and `view.seed` come from it
    check_invariants      "off"; "idle": whenever nothing runs, a failure is logged; "step": every step, a failure raises
    weight_version        part of every cache key
    policy_needs          `needs` of the policy's manifest row; "cached_tokens" fills that column for waiting requests,
                          "forest" `SchedulerView.forest`
    report_interval       least seconds between two reports to the main process while steps run; 0: one a step
    collect_metrics       whether reports carry every step's duration
    output_patience       ids of a request that is not streamed, and that no text can end, which may be held back from the
                          detokenizer; 0: none
    decision_steps        steps of the record of decisions; 0: none is kept, which is for measuring what it costs
    ended_lives           ended requests whose lives it keeps
    policy_plugin, cache_plugin, worker_plugin   their keys "kind.instance" in the fault ledger
    """

    context_length: int
    vocab_size: int
    max_running_requests: int = 256
    max_queued_requests: int | None = None
    max_prefill_tokens: int = 16384
    chunked_prefill_size: int | None = None
    max_consecutive_prefills: int = 8
    schedule_conservativeness: float = 1.0
    request_waiting_timeout: float | None = None
    request_running_timeout: float | None = None
    max_skips: int = 128
    hold_back_tokens: int = 32
    eos_token_ids: tuple[int, ...] = ()
    seed: int = 0
    check_invariants: CheckInvariants = "idle"
    weight_version: str = "0"
    policy_needs: frozenset[str] = frozenset()
    pooling: Pooling | None = None
    report_interval: float = 1.0
    collect_metrics: bool = False
    output_patience: int = 0
    decision_steps: int = 1024
    ended_lives: int = 1024
    policy_plugin: str = "schedule_policy"
    cache_plugin: str = "cache"
    worker_plugin: str = "worker"

    @property
    def chunk(self) -> int | None:
        """Most tokens of one prompt in one step; None: a prompt is never cut."""
        size = self.chunked_prefill_size
        return None if size == -1 else self.max_prefill_tokens if size is None else size

    @property
    def whole_prompts(self) -> bool:
        """Whether a prompt is computed in one forward, with nothing out of the cache and nothing into it."""
        return self.pooling is not None and self.pooling.whole

    def __post_init__(self) -> None:
        if self.whole_prompts and self.chunk is not None:
            raise ValueError("the model sees prompts whole: chunked_prefill_size must be -1")
        for name in (
            "context_length",
            "vocab_size",
            "max_running_requests",
            "max_prefill_tokens",
            "max_consecutive_prefills",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.chunk is not None and not 1 <= self.chunk <= self.max_prefill_tokens:
            raise ValueError(
                f"chunked_prefill_size is {self.chunk}; it must be -1 or between 1 and max_prefill_tokens, "
                f"{self.max_prefill_tokens}"
            )
        for name in (
            "max_skips",
            "hold_back_tokens",
            "report_interval",
            "output_patience",
            "decision_steps",
            "ended_lives",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if not 0 < self.schedule_conservativeness < float("inf"):
            raise ValueError(
                f"schedule_conservativeness is {self.schedule_conservativeness}; it must be a number greater than 0"
            )
        for name in ("request_waiting_timeout", "request_running_timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < float("inf"):
                raise ValueError(f"{name} is {seconds}; it must be more than 0 seconds, or None")
        if self.max_queued_requests is not None and self.max_queued_requests < 1:
            raise ValueError(f"max_queued_requests is {self.max_queued_requests}; it must be at least 1, or None")
        bad = [token for token in self.eos_token_ids if not 0 <= token < self.vocab_size]
        if bad:
            raise ValueError(f"eos_token_ids {bad} are outside the vocabulary of {self.vocab_size}")


def check_limits(config: SchedulerConfig, limits: WorkerLimits) -> None:
    """Configuration against worker: nothing is lowered silently. Raises ValueError."""
    running = config.max_running_requests
    # A prompt that is never cut shares its step with decodes at most.
    whole = config.context_length + running if config.chunk is None else 0
    checks = (
        (whole <= limits.max_tokens, f"with chunked prefill off, one step's {whole} tokens", limits.max_tokens),
        (config.context_length <= limits.max_context, f"context_length {config.context_length}", limits.max_context),
        (running <= limits.max_rows - 1, f"max_running_requests {running}", limits.max_rows - 1),
        (running <= limits.max_tokens, f"max_running_requests {running}", limits.max_tokens),
        (config.vocab_size <= limits.vocab_size, f"vocab_size {config.vocab_size}", limits.vocab_size),
    )
    if config.chunk is not None and config.chunked_prefill_size is not None and config.chunk % limits.page_size:
        raise ValueError(
            f"a chunk of {config.chunk} tokens is no whole number of the worker's pages of {limits.page_size} tokens"
        )
    if limits.window is not None:
        step = config.context_length if config.chunk is None else min(config.chunk, config.context_length)
        least = min(limits.total_slots, most_held(limits.window, limits.page_size, step + limits.max_tokens_per_row))
        if limits.window_slots < least:
            raise ValueError(
                f"the worker's pool for window layers has {limits.window_slots} slots; one request alone may need {least}: "
                "lower --chunked-prefill-size, or raise --max-total-tokens"
            )
    for ok, what, limit in checks:
        if not ok:
            raise ValueError(f"{what} exceeds what the worker can do: {limit}")
