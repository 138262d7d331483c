"""Every message that crosses between the main process, the scheduler and the detokenizer.

Fields are append-only: a field that an older peer does not know is ignored by it. Messages are batches where they are on
the path of tokens: one message a step, one entry a request.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.hookspecs.observer import StackChanged


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all messages; the tag is the class name."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request's generation settings, already validated (`managers.sampling_params` makes it from what a client sent).

    max_new_tokens        0 is allowed: prefill only
    stop                  strings that end the text; never empty ones
    stop_regex            patterns that end the text, each one that `managers.stop_regex` takes
    stop_token_ids        ids that end it, besides the model's own end tokens
    temperature           0 means greedy
    top_k                 0 means off
    seed                  None: the scheduler draws one
    stream_interval       tokens between two streamed chunks, >= 1
    frequency_penalty, presence_penalty   -2 .. 2, of output tokens; 0 is off
    repetition_penalty    above 0, at most 2, of prompt and output tokens; 1 is off
    logit_bias            id -> what is added to its logit, -100 .. 100, never 0
    min_new_tokens        no end token and none of `stop_token_ids` before so many; stops are looked for in the text behind them
    logits_processors     instance of a logits_processor plugin -> its parameters as JSON values, in the stack's order
    grammar               what the answer has to keep to, checked by the grammar backend
    grammar_after         ids behind which the grammar begins; (): at once
    """

    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    stream_interval: int = 1
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    min_new_tokens: int = 0
    logits_processors: dict[str, dict[str, Any]] = {}
    stop_regex: tuple[str, ...] = ()
    grammar: GrammarSpec | None = None
    grammar_after: tuple[int, ...] = ()


class LogprobParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request wants of log-probabilities, already validated (`managers.logprob_fields`).

    start   position of the prompt from which its tokens get entries: all after this one; the prompt's length: none
    top     how many of the likeliest tokens each entry names
    ids     tokens whose values each entry gives beside
    texts   the native answer names tokens by text too
    """

    start: int
    top: int = 0
    ids: tuple[int, ...] = ()
    texts: bool = False


class TokenLogprobs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Entries of n tokens that follow each other, as arrays in bytes, little-endian. k: the request's `top`, i: its ids.

    chosen       float32 [n]
    top_values   float32 [n, k], top_ids int32 [n, k]: falling
    ids_values   float32 [n, i]
    """

    chosen: bytes = b""
    top_values: bytes = b""
    top_ids: bytes = b""
    ids_values: bytes = b""


class FinishReason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request ended.

    type         "stop" | "length" | "abort"
    matched      stop: the id or the string that matched
    length       length: tokens generated
    message, status_code, err_type   abort: what to tell the client; status_code None: a plain abort, no error
    """

    type: str
    matched: int | str | None = None
    length: int | None = None
    message: str | None = None
    status_code: int | None = None
    err_type: str | None = None


# main -> scheduler


class TokenizedGenerateRequest(Message, frozen=True, kw_only=True):
    """rid is the runtime's own id, unique among live requests.

    names   other ids under which people know it, that of its answer first; not unique

    priority, tenant, deadline   see `managers.scheduling_fields`
    cache_salt, extra_key        cached prefixes are shared only where both are the same
    token_types   a byte for each of `input_ids`: to which of its texts it belongs; empty: all are 0
    """

    rid: str
    input_ids: list[int]
    sampling: SamplingParams
    stream: bool = False
    priority: int = 0
    tenant: str | None = None
    deadline: float | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    names: tuple[str, ...] = ()
    logprobs: LogprobParams | None = None
    token_types: bytes = b""


class AbortRequest(Message, frozen=True, kw_only=True):
    """End one request (exact rid), or all. `reason` becomes the request's finish reason."""

    rid: str = ""
    abort_all: bool = False
    reason: FinishReason | None = None


class StopRequest(Message, frozen=True, kw_only=True):
    """The detokenizer found a stop string: the request has ended for the client; the scheduler lets go of it."""

    rid: str


class FlushCacheRequest(Message, frozen=True, kw_only=True):
    """Forget all cached prefixes. timeout: seconds for which it may wait until no request is open; 0: refused at once."""

    control_id: int
    timeout: float = 0.0


class StateRequest(Message, frozen=True, kw_only=True):
    """Asks for the scheduler's numbers."""

    control_id: int


class WhyRequest(Message, frozen=True, kw_only=True):
    """Asks for the lives of the requests known under this id; `ControlReply.detail` has what `DecisionLog.why` gives."""

    control_id: int
    name: str


class SwapPolicyRequest(Message, frozen=True, kw_only=True):
    """Put another schedule policy in the place of the one that runs. `ControlReply.detail` says with `changed` whether it is
    another one, and with `epoch` of which stack it is part; options: all of its options, JSON values."""

    control_id: int
    name: str
    options: dict[str, Any] = {}


class WarmUpRequest(Message, frozen=True, kw_only=True):
    """begin: until the end, nothing is told to observers or counted in reports. At the end the cache is flushed, which
    needs an idle scheduler."""

    control_id: int
    begin: bool


# scheduler -> main


class PluginFaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One plugin's account in the fault ledger of the process that sends it; see `stack.faults`."""

    count: int
    by_scope: dict[str, int] = {}
    last: str = ""
    quarantined: bool = False


class HookCost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one plugin's method or hook, so far; see `stack.metering`."""

    calls: float
    seconds: float
    exceptions: float = 0.0
    overruns: float = 0.0


class SchedulerReport(Message, frozen=True, kw_only=True):
    """The scheduler's numbers: after a step at most once an interval, and once whenever it becomes idle.

    steps                steps committed so far, those of the warm-up included; new_steps: without them, since the last report
    running, waiting     requests
    kv_total .. kv_held  slots, as in `SlotAccounts`
    seconds              time since the last report, without the time in which nothing was open
    prefill_tokens .. evicted_tokens   increases since the last report: prompt tokens computed, prompt tokens taken from
                         the cache at admission, tokens sampled, tokens evicted from the cache
    retracted_requests   running requests that went back into the queue since the last report
    new_token_ratio      share of the outputs to come that admission reserves now
    tiers                KV tier -> its numbers so far, and under "" those of loads
    grammar_waiting      requests that wait for their grammar
    grammar_hits, grammar_timeouts, grammar_failures   since the last report: grammars that were there already, compilations that
                         took too long, and others that came to nothing
    grammar_seconds      one entry a compilation that ended since the last report
    worker_seconds       time in the worker's calls (launch, sample, waiting for a result) since the last report
    step_seconds, step_cpu_seconds     one entry a step since the last report; empty if nobody collects metrics
    faults               plugin -> its account, if this process has a ledger of its own
    hooks                plugin -> method or hook -> what it cost so far, likewise
    """

    steps: int
    running: int
    waiting: int
    kv_total: int
    kv_free: int
    kv_evictable: int
    kv_protected: int
    kv_pending: int
    kv_held: int
    seconds: float = 0.0
    new_steps: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    decode_tokens: int = 0
    evicted_tokens: int = 0
    retracted_requests: int = 0
    new_token_ratio: float = 1.0
    tiers: dict[str, dict[str, int]] = {}
    worker_seconds: float = 0.0
    step_seconds: list[float] = []
    step_cpu_seconds: list[float] = []
    faults: dict[str, PluginFaults] = {}
    hooks: dict[str, dict[str, HookCost]] = {}
    grammar_waiting: int = 0
    grammar_hits: int = 0
    grammar_timeouts: int = 0
    grammar_failures: int = 0
    grammar_seconds: list[float] = []


class ControlReply(Message, frozen=True, kw_only=True):
    """Answer to a control request. `data` holds plain values, `detail` nested ones."""

    control_id: int
    ok: bool
    message: str = ""
    data: dict[str, float | int | str | None] = {}
    detail: dict[str, Any] = {}


# scheduler -> detokenizer -> main


class RequestOpened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Travels before the first tokens of a request. prompt_tail: the last few prompt ids, context for decoding."""

    rid: str
    sampling: SamplingParams
    prompt_tail: list[int] = []
    stream: bool = False


class TokenOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request's part of a step.

    ids              new tokens, the stop token included
    finish           set exactly once a request, on its last entry; by then the scheduler holds nothing of it
    prompt_tokens, cached_tokens, retractions   set on the last entry
    tier_tokens      on the last entry: KV tier -> how many of the cached tokens it had kept
    stage_times      on the last entry: seconds in the scheduler by stage ("queue", "prefill", "decode")
    stack_epoch      on the last entry: of the stack that decided the step with which it ended
    logprobs         an entry for each of `ids`; prompt_logprobs: of prompt tokens, those that follow what was sent before.
                     Both only for requests that want them
    pooled           on the last entry, in a run that pools: float32, little-endian
    """

    rid: str
    ids: list[int] = []
    finish: FinishReason | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tier_tokens: dict[str, int] = {}
    retractions: int = 0
    stage_times: dict[str, float] = {}
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: TokenLogprobs | None = None
    stack_epoch: int = 0
    pooled: bytes = b""


class StackNews(Message, frozen=True, kw_only=True):
    """A plugin was swapped. It takes two ways to the main process, straight and behind all results of the stack before, and
    counts once. plugin: the `SelectedPlugin` that came, as plain values."""

    change: StackChanged
    plugin: dict[str, Any]


class BatchTokenOutput(Message, frozen=True, kw_only=True):
    opened: list[RequestOpened] = []
    outputs: list[TokenOutput] = []


class TextOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request's part of a detokenizer turn.

    text     new text; "" if it is held back
    ids      new tokens that the client may see
    finish   set exactly once: the answer is complete
    stack_epoch   as in `TokenOutput`, with `closed`
    closed   the scheduler holds nothing of the request any more; set exactly once, with `finish` or after it
    stop_scheduler   the detokenizer ended it (stop string) while the scheduler still runs it
    logprobs, prompt_logprobs, pooled   as in `TokenOutput`
    """

    rid: str
    text: str = ""
    ids: list[int] = []
    finish: FinishReason | None = None
    closed: bool = False
    stop_scheduler: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tier_tokens: dict[str, int] = {}
    retractions: int = 0
    stage_times: dict[str, float] = {}
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: TokenLogprobs | None = None
    stack_epoch: int = 0
    pooled: bytes = b""


class BatchTextOutput(Message, frozen=True, kw_only=True):
    outputs: list[TextOutput] = []


class PluginReport(Message, frozen=True, kw_only=True):
    """What became of the plugins in a process that sends no `SchedulerReport`: the detokenizer's. When it is different from
    the last. faults, hooks: as there."""

    role: str
    faults: dict[str, PluginFaults] = {}
    hooks: dict[str, dict[str, HookCost]] = {}


ToScheduler = (
    TokenizedGenerateRequest
    | AbortRequest
    | StopRequest
    | FlushCacheRequest
    | StateRequest
    | WhyRequest
    | SwapPolicyRequest
    | WarmUpRequest
)
ToDetokenizer = BatchTokenOutput | StackNews
ToMain = BatchTextOutput | ControlReply | SchedulerReport | PluginReport | StackNews
