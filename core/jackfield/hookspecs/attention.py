"""Kind `attention`: attention over the paged KV cache, grouped-query family."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.kv import KVGroup, KVLayout, KVTensors
from jackfield.hookspecs.markers import hookspec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class AttentionLayer:
    """One attention layer as a backend sees it (this rank's share of the heads).

    id         0-based; what `KVTensors.of(role, id)` takes
    group      name of its KV group
    scale      factor on q·k before the softmax
    window     a token sees itself and the `window - 1` tokens before it; None: all before it
    soft_cap   scores become soft_cap * tanh(scores / soft_cap); None: off
    causal     False: a token also sees the row's later ones (feature "non_causal")
    kv_source  id of the layer whose KV it reads; None: its own (`id`)
    """

    id: int
    group: str
    num_heads: int
    num_kv_heads: int
    head_size: int
    v_head_size: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None
    causal: bool = True
    kv_source: int | None = None


class AttentionMode(enum.Enum):
    """EXTEND: rows of any length over a cached prefix, one new token included; DECODE: one new token in every row;
    MIXED (feature "mixed"): rows of one new token among longer ones, which a backend may treat apart."""

    EXTEND = "extend"
    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, kw_only=True)
class HostLengths:
    """The lengths on the host, for planning without a device synchronisation.

    q_lens    new tokens of each row, int32 [n]
    kv_lens   tokens to attend to, new ones included, int32 [n]
    exact     False while results are in flight: then kv_lens are upper bounds
    """

    q_lens: NDArray[np.int32]
    kv_lens: NDArray[np.int32]
    exact: bool = True


@dataclass(frozen=True, kw_only=True)
class TreeMask:
    """Which of its row's new tokens a token sees, where these are a tree of drafts and no sequence; what was there before
    them it sees as ever, and windows and soft caps hold as well.

    among   bool [total new, max_q], on the device: token t of row i sees the row's j-th new token iff among[t, j]. A token
            always sees itself; entries for tokens that the row does not have are False. Takes the place of `causal` among
            the new tokens; a window counts positions as they lie in `kv_lens`, whatever the depth in the tree
    """

    among: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class GraphShape:
    """What one captured graph serves. rows: of its padded decode batches, all of one new token; max_kv: the longest kv_len
    that any of its replays has."""

    rows: int
    max_kv: int


@dataclass(frozen=True, kw_only=True)
class AttentionBatch:
    """One forward's rows, the same for every layer. Tensors are int32 unless said otherwise.

    mode        see `AttentionMode`
    rows        [n] row of each request in `AttentionContext.tables`; its tokens' slots are tables[group][row, :kv_len]
    q_starts    [n + 1] where each row's new tokens start in the token dimension
    kv_lens     [n] tokens to attend to, the new ones included; they come last, so row i's first new token stands at
                position kv_lens[i] - (q_starts[i + 1] - q_starts[i])
    out_slots   group name -> int64 [total new]: the slot into which each new token's KV goes
    max_q, max_kv   upper bounds of the lengths
    mask        among each row's new tokens (feature "tree_mask", mode EXTEND alone); None: `AttentionLayer.causal` says all
    """

    mode: AttentionMode
    rows: torch.Tensor
    q_starts: torch.Tensor
    kv_lens: torch.Tensor
    out_slots: Mapping[str, torch.Tensor]
    host: HostLengths
    max_q: int
    max_kv: int
    mask: TreeMask | None = None


class AttentionPlan:
    """What `plan` made for one batch. A backend subclasses it and keeps there what `attend` needs, the batch included;
    several may be alive at once."""

    __slots__ = ()


class AttentionBackend(ABC):
    """A mode, layout or feature that the manifest does not declare is never sent; a declared one is never refused."""

    @abstractmethod
    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        """Group name -> its tensors, which the core owns. Called before the first plan, and again if they move."""

    @abstractmethod
    def plan(self, batch: AttentionBatch) -> AttentionPlan:
        """Whatever depends on the batch alone. May enqueue device work, never waits for it. Raises `BatchFault`, with nothing
        enqueued, for a batch that it cannot serve."""

    @abstractmethod
    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        """Write k, v at the batch's out_slots (None: they are already written), then fill every real row of `out`.

        q [total new, num_heads, head_size]; k [total new, num_kv_heads, head_size];
        v [total new, num_kv_heads, v_head_size]; out [total new, num_heads, v_head_size], contents undefined before.
        In q, k and v a token's heads are dense, but tokens may lie apart (parts of one product); `out` is contiguous.
        Query head h reads key/value head h // (num_heads // num_kv_heads). How the KV lies stands in `KVLayout`.
        """

    # Feature "graph": a decode step's device work is recorded once and replayed many times. The order of the calls is
    # plan_graph; then for each use: the batch's tensors are filled, refresh; in_graph and each layer's attend, as a recording,
    # as a replay of it, or one by one as in any step.

    def plan_graph(self, batch: AttentionBatch, shape: GraphShape) -> AttentionPlan:
        """A plan that outlives its batch, for a graph of `shape`; called outside the recording, and several may be alive.

        The batch's tensors stay where they are and are filled anew before each use: always mode DECODE and `shape.rows` rows,
        some of which may be padding: row 0, kv_len 1, out_slots 0, whose output nobody reads. How the work is laid out for the
        device (launch grids, splits) must do for each batch whose kv_lens are at most `shape.max_kv`. The plan itself keeps
        alive what its recorded work reads, memory from `AttentionContext.workspace` included, whose contents last from
        `refresh` to the end of that use. The KV of `bind` does not move while such plans are in use.
        """
        raise NotImplementedError(f'{type(self).__name__} does not do what the feature "graph" promises')

    def in_graph(self, plan: AttentionPlan) -> None:
        """The part of planning that is recorded, ahead of the first layer: device work alone, which reads the batch's tensors.
        Neither this nor `attend` of such a plan may allocate what it does not free, depend on a value on the host that
        `refresh` changes, or wait for the device."""
        raise NotImplementedError(f'{type(self).__name__} does not do what the feature "graph" promises')

    def refresh(self, plan: AttentionPlan, batch: AttentionBatch) -> None:
        """Before each use, outside the recording: the batch of `plan_graph` with other values in the same tensors, and with its
        own `HostLengths`, `max_q` and `max_kv`. May enqueue device work, never waits for it. Raises `BatchFault` as `plan`."""
        raise NotImplementedError(f'{type(self).__name__} does not do what the feature "graph" promises')


@dataclass(frozen=True, kw_only=True)
class AttentionLimits:
    """max_rows: most rows of a batch; max_tokens: most new tokens of a batch; max_context: longest kv_len."""

    max_rows: int
    max_tokens: int
    max_context: int


@dataclass(frozen=True, kw_only=True)
class AttentionContext(PluginContext):
    """What a backend is made for.

    phases   which of "prefill", "decode" it serves in this run
    tables   group name -> int32 tensor [rows, max_context]: slot of each token of each row (row 0 is the dummy row). In a
             window group the entries before the first token that the batch's tokens of the row see are undefined, and what
             they name must not be read, under a mask either
    device, dtype   torch names, such as "cpu", "float32"
    workspace       bytes -> scratch memory of at least that size (uint8, on the device, contents undefined), shared by the
                    layers of one forward and by both phases' backends; ask anew for every plan
    deterministic   a token's result must have the same bits in every batch, chunk and phase, wherever its KV lies: a
                    function of its query and of the keys and values that it sees. Set only for a backend that declares
                    "batch_invariant" for this device and dtype, and that then serves both phases
    kv_dtype        of the KV tensors where it is not `dtype` (feature "kv:<name>"): "float32", "float16", "bfloat16", "fp8_e4m3"
                    or "fp8_e5m2" (torch's float8_e4m3fn and float8_e5m2). Keys and values are stored by a cast without a scale
                    that saturates (what is beyond the range becomes its largest finite value, NaN stays NaN) and read back by
                    a cast to `dtype`; a token's own new ones too are seen as they are stored. Sums are kept in float32 as ever
    """

    phases: tuple[str, ...]
    layers: tuple[AttentionLayer, ...]
    groups: tuple[KVGroup, ...]
    layouts: Mapping[str, KVLayout]
    page_size: int
    tables: Mapping[str, torch.Tensor]
    limits: AttentionLimits
    device: str
    dtype: str
    workspace: Callable[[int], torch.Tensor]
    deterministic: bool = False
    kv_dtype: str | None = None


class AttentionSpecs:
    @hookspec
    def jackfield_attention_backend(self, context: AttentionContext) -> AttentionBackend:  # type: ignore[empty-body]
        """Make the backend.

        Process: scheduler (the worker's side). When: once at start for each phase's plugin; one object serves both
        phases when one plugin is chosen for both. Cost: any. Example:

            @hookimpl
            def jackfield_attention_backend(context: AttentionContext) -> AttentionBackend:
                from my_package.backend import MyBackend  # heavy imports belong inside

                return MyBackend(context)
        """
