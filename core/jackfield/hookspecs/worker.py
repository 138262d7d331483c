"""Kind `worker`: runs batches. Only plain data crosses, so a worker may be another process, a device or a cost model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import PluginContext, no_slots
from jackfield.hookspecs.logits_processor import ProcessorSource
from jackfield.hookspecs.logprobs import Logprobs, LogprobSpec
from jackfield.hookspecs.markers import hookspec
from jackfield.hookspecs.mover import KVMover
from jackfield.hookspecs.pooling import Pooling

if TYPE_CHECKING:
    from jackfield.hookspecs.attention import AttentionBackend, AttentionContext
    from jackfield.hookspecs.kv import KVLayout
    from jackfield.hookspecs.loader import ModelSource, Shard
    from jackfield.hookspecs.model import ModelEntry, ModelShape
    from jackfield.hookspecs.ops import Ops, OpsContext


_NO_VALUES: NDArray[np.float32] = np.empty(0, dtype=np.float32)
_NO_VALUES.flags.writeable = False


_NO_TYPES: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
_NO_TYPES.flags.writeable = False


def _no_values() -> NDArray[np.float32]:
    return _NO_VALUES


def _no_types() -> NDArray[np.uint8]:
    return _NO_TYPES


@dataclass(frozen=True, kw_only=True)
class RowOpen:
    """Sent once when a request gets its row.

    row           in the request-to-token table; > 0, row 0 is the dummy row
    uid           the request's number, never reused
    history       int32: all tokens known when the row opens (prompt, and outputs after a retraction)
    temperature   0 means greedy
    top_k         0 means off
    seed          64-bit; a draw at position p depends on (seed, p) alone
    adapter       code of the adapter; 0 the base model

    What a worker gets only if its manifest lists the feature in brackets:
    frequency_penalty, presence_penalty, repetition_penalty   [penalties] 0, 0 and 1 mean off
    bias_ids, bias_values   [logit_bias] int32 and float32 [k]: what is added to the logits of k distinct ids
    min_new_tokens, end_ids   [min_new_tokens] no id of `end_ids`, int32 [k], is drawn before so many outputs
    processors    [logits_processors] instance -> the parameters that the request gave, JSON values, in the stack's order
    token_types   [pooling] uint8, one for each token of `history`: to which of its texts it belongs; empty: all are 0
    outputs       how many of `history`, at its end, are outputs of the request
    logprobs      what entries the row wants; None: none. Only for workers that declare the feature `logprobs`; prompt
                  entries only for those that declare `prompt_logprobs`
    """

    row: int
    uid: int
    history: NDArray[np.int32]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    adapter: int = 0
    outputs: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    bias_ids: NDArray[np.int32] = field(default_factory=no_slots)
    bias_values: NDArray[np.float32] = field(default_factory=_no_values)
    min_new_tokens: int = 0
    end_ids: NDArray[np.int32] = field(default_factory=no_slots)
    processors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    logprobs: LogprobSpec | None = None
    token_types: NDArray[np.uint8] = field(default_factory=_no_types)


@dataclass(frozen=True, kw_only=True)
class RowWrites:
    """Changes of the request-to-token table, applied before the forward: run i writes `lengths[i]` slots into
    `rows[i]` from position `starts[i]`; `slots` holds the runs one behind the other. int32."""

    rows: NDArray[np.int32] = field(default_factory=no_slots)
    starts: NDArray[np.int32] = field(default_factory=no_slots)
    lengths: NDArray[np.int32] = field(default_factory=no_slots)
    slots: NDArray[np.int32] = field(default_factory=no_slots)


@dataclass(frozen=True, kw_only=True)
class WindowWrites:
    """Changes of the window pool's map, applied before the forward: the window layers' KV of page `pages[i]` now lies in page
    `window_pages[i]` of their own pool; 0: nowhere. int32 [n], distinct `pages`. The slots of page p are
    p * page_size .. p * page_size + page_size - 1, in both pools."""

    pages: NDArray[np.int32] = field(default_factory=no_slots)
    window_pages: NDArray[np.int32] = field(default_factory=no_slots)


@dataclass(frozen=True, kw_only=True)
class ModelWorkerBatch:
    """One step, as plain data. Applied in launch order: closed, opened, writes, window, forward.

    step         number of the step
    opened       rows that begin; closed: rows that ended since the last batch
    writes       changes of the request-to-token table
    window       changes of the window pool's map, for workers that have one (`WorkerLimits.window`)
    rows         int32 [n] the batch's rows, distinct
    new_tokens   int32 [n] tokens each row advances, >= 1
    computed     int32 [n] tokens of the row whose KV is there before this step; an upper bound unless `exact`
    token_ids    int32 [sum(new_tokens)] >= 0, known to the host; where `relay`, the row's last one is a placeholder 0
    relay        bool [n]: the row's last new token is the newest token that this worker sampled for the row
    sample       bool [n]: False for a middle chunk
    wait_for     tickets of copies that must have ended before the forward
    most         int32 [n] most tokens that each sampled row may give, >= 1; None: one each. A row has slots for
                 computed + new_tokens + most - 1 tokens: the KV of all tokens that the worker accepts but the last is
                 written in this step, behind that of its new tokens
    exact        False: for rows with `relay`, `computed` is an upper bound, because the worker has not told yet how many
                 tokens the steps before gave. It knows by itself: all its tokens of the row but the newest have KV
    pool         bool [n]: the row's prompt ends with this step, and what the model gives of it is wanted. None in a run that
                 does not pool; in one that does (`WorkerContext.pooling`), no row is sampled
    """

    step: int
    rows: NDArray[np.int32]
    new_tokens: NDArray[np.int32]
    computed: NDArray[np.int32]
    token_ids: NDArray[np.int32]
    relay: NDArray[np.bool_]
    sample: NDArray[np.bool_]
    opened: tuple[RowOpen, ...] = ()
    closed: NDArray[np.int32] = field(default_factory=no_slots)
    writes: RowWrites = field(default_factory=RowWrites)
    exact: bool = True
    wait_for: tuple[int, ...] = ()
    shared_prefix: Any = None
    most: NDArray[np.int32] | None = None
    window: WindowWrites = field(default_factory=WindowWrites)
    pool: NDArray[np.bool_] | None = None


@dataclass(frozen=True, kw_only=True)
class TokenMasks:
    """Which tokens rows of a batch may get, for workers that declare the feature `token_masks`. Applied after everything else
    that changes logits; log-probabilities are not changed by it.

    rows   int32 [k] rows of the request-to-token table, sampled in this batch, distinct; the others are free
    bits   uint32 [k, ceil(vocab_size / 32)]: bit (id % 32) of word (id // 32) is set where the token may come. At least one
           is in each row
    """

    rows: NDArray[np.int32]
    bits: NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class WorkerResult:
    """What came of one batch, in the batch's row order.

    tokens    int32, ragged
    starts    int32 [n + 1]: row i's tokens are tokens[starts[i]:starts[i+1]]: none for a chunk, one to the batch's `most`
              for a sampled row. Those behind a token that ends the request are discarded
    errors    batch index -> message, for rows that failed alone (NaN logits, say)
    logprobs  the entries that rows of the batch want; None if no row wants any
    refused   why no forward was begun for this batch (`BatchFault`); then no row gives anything, all its requests end, and
              the worker goes on with the next batch. "": it was
    pooled    batch index -> float32 [`Pooling.width`], finite, for each row that the batch's `pool` names and that did not
              fail
    """

    tokens: NDArray[np.int32]
    starts: NDArray[np.int32]
    errors: Mapping[int, str] = field(default_factory=dict)
    logprobs: Logprobs | None = None
    refused: str = ""
    pooled: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    hidden: Any = None


class PendingResult(Protocol):
    """Read by the scheduler's thread, which need not be the one that calls the worker, and perhaps after later launches."""

    def ready(self) -> bool:
        """True when `result` would not block."""
        ...

    def result(self, timeout: float | None = None) -> WorkerResult:
        """Waits at most `timeout` seconds (None: for ever). Raises TimeoutError, or the worker's own failure."""
        ...


class Launched:
    """A launched, not yet sampled step. A worker subclasses it."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class WorkerLimits:
    """What the scheduler may ask of this worker.

    max_rows        rows of the request-to-token table, the dummy row 0 included
    max_context     longest sequence, tokens
    total_slots     KV slots that requests may use; a multiple of page_size. Slots 0 .. page_size-1 are the dummy page and
                    are not counted: valid slots are page_size .. page_size + total_slots - 1
    max_tokens      most new tokens in one batch; those that a row may give beyond one (`max_tokens_per_row`) do not count
    kv_bytes_per_slot   0 if there is no real memory
    max_tokens_per_row  most tokens that a decoding row gives in one step: 1, or more for a worker that drafts and verifies.
                    Then every decoding row gets slots for so many
    deferred        a step can be sampled only after the commits of the steps before it; loops keep to that
    window          tokens that the window layers look back, themselves included, where these layers have a smaller pool of
                    their own; None: they have as many slots as the others. Only if `WorkerContext.window_pool`
    window_slots    that pool's slots, numbered as those of `total_slots`; a multiple of page_size, at most total_slots. Slot
                    s of a request lies there in the page that `WindowWrites` names for its page. For a token at position p
                    the pool holds positions p - window + 1 .. p of its row, and perhaps nothing before them
    """

    max_rows: int
    max_context: int
    total_slots: int
    page_size: int
    vocab_size: int
    max_tokens: int
    kv_bytes_per_slot: int = 0
    max_tokens_per_row: int = 1
    deferred: bool = False
    window: int | None = None
    window_slots: int = 0


@dataclass(frozen=True, kw_only=True)
class WorkerOp:
    """A control operation: `name` and its arguments ("reset", "profile", ...)."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WorkerReply:
    ok: bool
    message: str = ""


class InsufficientMemory(Exception):
    """Raised by `jackfield_model_worker` where weights, KV cache or the largest step do not fit. The text holds the numbers and
    says what to change; it is shown as it is."""


class ModelWorker(ABC):
    """Owns all device state. Called from one thread, which need not be the one that made it. Each launch is sampled exactly
    once, in launch order.

    Under a loop with several steps in flight, a worker that does not declare the feature `async` is put on a thread of its
    own by the core.
    """

    limits: WorkerLimits

    @abstractmethod
    def launch(self, batch: ModelWorkerBatch) -> Launched:
        """Apply the deltas and start the forward."""

    @abstractmethod
    def sample(self, launched: Launched, masks: TokenMasks | None = None) -> PendingResult:
        """Sample the launched step. masks: of its rows that are bound by a grammar; None: of none. They come late, after the
        commits of all steps before. A row under a mask gives at most one token."""

    @abstractmethod
    def close(self) -> None:
        """Free everything. May be called twice."""

    def mover(self) -> KVMover | None:
        """Copies of this worker's KV; asked for once. A worker with the feature `kv_move` gives one. None: it makes none."""
        return None

    def report(self) -> Mapping[str, float | int | str | None]:
        """What it tells of itself for `/server_info`, by names in small letters. Any thread, at any time."""
        return {}

    def control(self, op: WorkerOp) -> WorkerReply:
        """An operation beside the batches, called only with nothing in flight. Unknown: not ok, and says so."""
        return WorkerReply(ok=False, message=f"this worker does not know the operation {op.name!r}")


class VirtualClock(Protocol):
    """The scheduler's clock as a simulated worker sees it: it books time, and `wait` moves the clock there."""

    def now(self) -> float:
        """Seconds."""
        ...

    def advance_to(self, when: float) -> None:
        """Move on to `when`; never back."""
        ...


@dataclass(frozen=True, kw_only=True)
class WeightCache:
    """Where a worker may keep packed weights on disk for later starts (`Ops.export`).

    directory   need not exist yet
    max_bytes   of all that is kept there
    owner       whose work the weights are: a text that changes with the code of the ops plugin and of the loader
    digest      SHA-256 (hex) of a file; remembered, so that an unchanged file is not read again. Raises OSError
    """

    directory: Path
    max_bytes: int
    owner: str
    digest: Callable[[Path], str]


@dataclass(frozen=True, kw_only=True)
class WorkerStack:
    """The plugins that a model-running worker builds on, as makers: each hands the context to the plugin chosen.

    attention    phase ("prefill", "decode") -> (plugin name, maker); one plugin for both appears twice with one maker
    attention_features   phase -> the features that its plugin's manifest declares; a batch of prefill and decode rows
                 goes to the prefill backend, as mode MIXED if it declares "mixed", else as EXTEND
    ops_features  of the ops plugin's manifest
    ops_encodings   encodings in which weights are packed: "plain", and those of the checkpoint that stay as they are because
                 the ops plugin's manifest declares them and the run allows it; others are decoded at loading
    packed_only  a linear weight in a packed encoding that would have to be decoded is refused
    quantization   for `OpsContext.quantization`
    weight_cache   None: nothing is kept
    """

    source: ModelSource
    config: Mapping[str, Any]
    shape: ModelShape
    model: ModelEntry
    layout: KVLayout
    attention: Mapping[str, tuple[str, Callable[[AttentionContextFields], AttentionBackend]]]
    ops: Callable[[OpsContextFields], Ops]
    attention_features: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ops_features: frozenset[str] = frozenset()
    ops_encodings: frozenset[str] = frozenset({"plain"})
    packed_only: bool = False
    quantization: str | None = None
    weight_cache: WeightCache | None = None


AttentionContextFields = Mapping[str, Any]
"""The fields of `AttentionContext` beyond those of `PluginContext`, which the core adds."""

OpsContextFields = Mapping[str, Any]
"""The fields of `OpsContext` beyond those of `PluginContext`, which the core adds."""


@dataclass(frozen=True, kw_only=True)
class WorkerContext(PluginContext):
    """What a worker is made for. `None` limits mean: choose.

    device, dtype       torch names
    max_running         most requests at once
    max_total_tokens    KV slots wanted, or None
    max_context         longest sequence
    max_tokens          most new tokens in one batch
    vocab_size          ids are 0 .. vocab_size - 1
    eos_ids             the model's end tokens
    encode              text -> token ids with the model's tokenizer, special tokens of a template not added; None when
                        the run has no tokenizer
    clock               set when the run has a virtual clock
    stack               set when the manifest's `needs` names "attention", "ops", "model" or "loader"
    processors          the run's logits processors, in the stack's order; only for a worker that declares the feature
                        `logits_processors`
    progress            set when somebody watches the start: call it with (what, done, total), such as
                        ("loading weights", 12, 272), as often as there is news
    deterministic       logits and tokens of a request must be the same in every batch: hand it on to attention and ops.
                        Set only for a worker that declares "batch_invariant"
    window_pool         the cache and the scheduler can do with a smaller pool for window layers: `limits.window` may be set
    kv_dtype            of the KV cache where it is not `dtype`: another of those names, "fp8_e4m3" or "fp8_e5m2"; attention is
                        told (`AttentionContext.kv_dtype`). Only for a worker that declares the feature `kv_dtype`
    mem_fraction        share, above 0 and below 1, of the memory that is free before anything is loaded, which weights and KV
                        cache may take together; only for a worker that declares the feature `mem_fraction`
    pooling             the run gives this of each prompt, and no tokens; only for a worker that declares the feature `pooling`.
                        None: it generates
    graph_rows          batch sizes for which decode steps are to be recorded and replayed (CUDA graphs), smaller batches being
                        padded; (): none are; None: choose. Only for a worker that declares the feature `graph`
    graph_max_rows      the largest of those that are chosen; None: choose
    warm_up             where kernels are compiled or loaded at their first call, call them once before the worker is handed
                        out, without a trace in its results; False: leave it to the first requests
    """

    shard: Shard
    device: str
    dtype: str
    seed: int
    page_size: int
    max_running: int
    max_total_tokens: int | None
    max_context: int
    max_tokens: int
    vocab_size: int
    eos_ids: tuple[int, ...] = ()
    encode: Callable[[str], list[int]] | None = None
    clock: VirtualClock | None = None
    stack: WorkerStack | None = None
    processors: tuple[ProcessorSource, ...] = ()
    progress: Callable[[str, int, int], None] | None = None
    deterministic: bool = False
    window_pool: bool = False
    pooling: Pooling | None = None
    kv_dtype: str | None = None
    mem_fraction: float | None = None
    graph_rows: tuple[int, ...] | None = None
    graph_max_rows: int | None = None
    warm_up: bool = False


class WorkerSpecs:
    @hookspec
    def jackfield_model_worker(self, context: WorkerContext) -> ModelWorker:  # type: ignore[empty-body]
        """Make the worker; load the model, allocate the KV cache.

        Process: scheduler. When: once at start. Cost: the model's loading time. Raises: `InsufficientMemory` where it does not
        fit, `ModelSourceError` for a checkpoint. Example:

            @hookimpl
            def jackfield_model_worker(context: WorkerContext) -> ModelWorker:
                from my_package.worker import MyWorker

                return MyWorker(context)
        """


if TYPE_CHECKING:
    _ = (AttentionContext, OpsContext)
