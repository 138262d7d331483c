"""One request's life inside the scheduler: what is fixed about it, and what is an object rather than a number.

Numbers that change from step to step are columns of the request tables (`table.py`), not fields here.
"""

from __future__ import annotations

import enum
import hashlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import NO_SLOTS, CacheKey, Lease, LogprobSpec, RowOpen, tenant_code
from jackfield.ipc.messages import LogprobParams, SamplingParams, TokenizedGenerateRequest
from jackfield.managers.scheduler.grammar.constraint import Constraint
from jackfield.observability.stages import RequestStage, StageTimes


class RequestState(enum.Enum):
    """WAITING: no row, no lease. RUNNING: one row and one lease. FINISHED: released, and nothing can bring it back."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


def cache_namespace(weight_version: str, adapter: int, salt: str | None, extra_key: str | None = None) -> bytes:
    """The part of a cache key that keeps weights, adapters, salts and extra keys apart; unambiguous for any strings.

    A salt goes in as a hash: namespaces are told to observers in cache events, and the salt is the client's secret.
    """
    kept = [weight_version, adapter, _hashed(salt)]
    return msgspec.msgpack.encode(kept if extra_key is None else [*kept, _hashed(extra_key)])


def _hashed(text: str | None) -> bytes | None:
    return None if text is None else hashlib.blake2b(text.encode(), digest_size=16).digest()


def _end_ids(sampling: SamplingParams, eos_ids: tuple[int, ...]) -> NDArray[np.int32]:
    """The ids that would end the request too early, as the commit would see it."""
    if not sampling.min_new_tokens:
        return NO_SLOTS
    ends = sampling.stop_token_ids if sampling.ignore_eos else (*eos_ids, *sampling.stop_token_ids)
    return np.unique(np.array(ends, dtype=np.int32))


class Request:
    """A request that passed the intake.

    prompt          int32 [prompt length], read-only
    max_new_tokens  as granted by `check_capacity`
    output_ids      committed tokens
    row, lease      set while RUNNING
    end_ids         int32 [k]: what `min_new_tokens` holds back; empty if nothing is
    known_key       the cache key of all tokens known when it last began to wait; a prefill computes them
    cached_tokens   what the cache held at its first admission, or None
    deadline        seconds on the scheduler's clock, or None
    token_types     uint8 [prompt length]: to which of its texts each token belongs; empty: all are 0
    whole           it is computed in one forward: nothing of it comes out of the cache or goes into it
    logprobs        what entries it wants; logprobs_sent: end of the prompt positions whose entries are sent, or not wanted
    patient         nobody reads on while it runs: its ids are told at its end, and no text can end it
    constraint      its place in its grammar; None without one, and until it is compiled
    watched         the key under which `HoldBack` knows its running prefill, or None
    """

    __slots__ = (
        "arrival",
        "cached_tokens",
        "constraint",
        "deadline",
        "end_ids",
        "known_key",
        "lease",
        "logprobs",
        "logprobs_sent",
        "max_new_tokens",
        "namespace",
        "output_ids",
        "patient",
        "priority",
        "prompt",
        "prompt_key",
        "rid",
        "row",
        "sampling",
        "seed",
        "state",
        "stop_ids",
        "stream",
        "tenant",
        "times",
        "token_types",
        "uid",
        "watched",
        "whole",
    )

    def __init__(
        self,
        message: TokenizedGenerateRequest,
        *,
        uid: int,
        prompt: NDArray[np.int32],
        max_new_tokens: int,
        seed: int,
        namespace: bytes,
        now: float,
        eos_ids: tuple[int, ...] = (),
        whole: bool = False,
    ) -> None:
        prompt.flags.writeable = False
        self.uid = uid
        self.rid = message.rid
        self.sampling: SamplingParams = message.sampling
        self.stream = message.stream
        self.patient = not (message.stream or message.sampling.stop or message.sampling.stop_regex)
        self.prompt = prompt
        self.namespace = namespace
        self.prompt_key = CacheKey(namespace=namespace, tokens=prompt, priority=message.priority)
        self.max_new_tokens = max_new_tokens
        self.stop_ids = frozenset(message.sampling.stop_token_ids)
        self.end_ids = _end_ids(message.sampling, eos_ids)
        self.seed = seed
        self.arrival = now
        self.priority = message.priority
        self.tenant = tenant_code(message.tenant)
        self.deadline = None if message.deadline is None else now + message.deadline
        self.token_types = np.frombuffer(message.token_types, dtype=np.uint8)
        self.whole = whole
        self.logprobs = message.logprobs
        self.logprobs_sent = len(prompt) if message.logprobs is None else min(message.logprobs.start + 1, len(prompt))
        self.output_ids: list[int] = []
        self.state = RequestState.WAITING
        self.row = 0
        self.lease: Lease | None = None
        self.known_key = self.prompt_key
        self.cached_tokens: int | None = None
        self.constraint: Constraint | None = None
        self.watched: tuple[bytes, bytes] | None = None
        self.times = StageTimes()
        self.times.enter(RequestStage.QUEUE, now)

    def known_tokens(self, count: int) -> NDArray[np.int32]:
        """The first `count` tokens of prompt and committed outputs, int32 [count], never changed afterwards."""
        length = len(self.prompt)
        if count <= length:
            return self.prompt[:count]
        return np.concatenate([self.prompt, np.array(self.output_ids[: count - length], dtype=np.int32)])

    def most_cached(self, known: int) -> int:
        """How many of its first `known` tokens may come out of the cache: the last is always computed, and so is every token
        whose forward gives an entry of the prompt that is still wanted."""
        if self.whole:
            return 0
        return min(known, self.logprobs_sent) - 1 if self.logprobs_sent < len(self.prompt) else known - 1

    def key(self, count: int) -> CacheKey:
        """The cache key of the first `count` known tokens."""
        if count == len(self.prompt):
            return self.prompt_key
        return CacheKey(namespace=self.namespace, tokens=self.known_tokens(count), priority=self.priority)

    def wait(self, now: float) -> None:
        """Its row, slots and lease are given back: it waits again, with the tokens that it has."""
        self.state = RequestState.WAITING
        self.row = 0
        self.known_key = self.key(len(self.prompt) + len(self.output_ids))
        self.times.enter(RequestStage.QUEUE, now)

    def row_open(self) -> RowOpen:
        """What the worker is told when the request gets its row."""
        sampling = self.sampling
        bias = sampling.logit_bias
        return RowOpen(
            row=self.row,
            uid=self.uid,
            history=self.known_key.tokens,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            seed=self.seed,
            outputs=len(self.output_ids),
            frequency_penalty=sampling.frequency_penalty,
            presence_penalty=sampling.presence_penalty,
            repetition_penalty=sampling.repetition_penalty,
            bias_ids=np.fromiter(bias, dtype=np.int32, count=len(bias)),
            bias_values=np.fromiter(bias.values(), dtype=np.float32, count=len(bias)),
            min_new_tokens=sampling.min_new_tokens,
            end_ids=self.end_ids,
            processors=sampling.logits_processors,
            logprobs=None if self.logprobs is None else self._logprob_spec(self.logprobs),
            token_types=self.token_types,
        )

    def _logprob_spec(self, wanted: LogprobParams) -> LogprobSpec:
        return LogprobSpec(
            top=wanted.top,
            ids=np.array(wanted.ids, dtype=np.int32),
            prompt_start=self.logprobs_sent,
            prompt_end=len(self.prompt),
        )
