"""What Triton compiles for GPUs that are not here. The backend runs up to where a kernel would be compiled, as its launcher
would ask for it: so the tests know which arguments are specialised, how many kernels a run needs, and what these take.

The interpreter knows none of this: it lets pass what does not compile, types above all, and has all memory in the world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import triton
from triton._C.libtriton import ir, nvidia, passes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.driver import driver

from jackfield.hookspecs import NHD_PAGED, AttentionBatch, AttentionMode, GraphShape, HostLengths, TreeMask
from jackfield.testing.attention_cases import AttentionCase, PreparedCase, prepare
from jackfield_attention_triton import backend as backends
from jackfield_attention_triton.backend import TritonAttention

# KiB that one program may have, by generation; 8.6 is as 8.9, 10.3 as 10.0.
SHARED: Mapping[int, int] = {80: 163, 89: 99, 90: 227, 100: 227, 120: 99}
COLUMNS = 512  # of tensor memory, where there is any
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
DECODE, CHUNK = ((500, 1),), ((500, 300),)


@dataclass(frozen=True)
class Variant:
    """A kernel as it would be compiled for a launch."""

    source: ASTSource
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.source.fn.__name__)

    def memory(self, generation: int) -> tuple[float, int]:
        """What a program takes: KiB of shared memory, columns of tensor memory. Compiled as far as these are given out, which
        is the smaller part of the way."""
        target = GPUTarget("cuda", generation, 32)
        compiler = make_backend(target)
        options = compiler.parse_options(dict(self.options))
        context = ir.context()
        ir.load_dialects(context)
        compiler.load_dialects(context)
        stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
        compiler.add_stages(stages, options, self.source.language)
        functions, modules = compiler.get_codegen_implementation(options), compiler.get_module_map()
        made = self.source.make_ir(target, options, functions, modules, context)
        for stage in ("ttir", "ttgir"):
            made = stages[stage](made, {})
        rest = ir.pass_manager(context)
        passes.convert.add_scf_to_cf(rest)
        nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(rest, generation, options.ptx_version or 86)
        nvidia.passes.ttnvgpuir.add_allocate_tensor_memory(rest)
        rest.run(made, "memory")
        return int(made.get_int_attr("ttg.shared")) / 1024, int(made.get_int_attr("ttg.tensor_memory_size") or 0)


@dataclass(frozen=True)
class NoGPU:
    """Triton's driver: it says what it compiles for, and launches nothing."""

    generation: int

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.generation, 32)

    def get_current_device(self) -> str:
        return str(self.generation)  # kernels keep what they know of a device by this

    def get_current_stream(self, device: str) -> int:
        return 0


@pytest.fixture
def compiled_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], dict[str, Variant]]:
    """Puts a GPU of a generation in place; returns where the variants gather, each once, that launches ask for."""

    def put(generation: int) -> dict[str, Variant]:
        found: dict[str, Variant] = {}

        def asked(*, key: str, fn: Any, compile: Mapping[str, Any], **_: object) -> bool:
            function, options = fn.jit_function, ("num_warps", "num_stages", "enable_fp_fusion")
            source = ASTSource(function, compile["signature"], compile["constants"], compile["configs"][0])
            found[f"{fn.name} {key}"] = Variant(source, {name: compile[name] for name in options})
            return True  # it shall not be compiled

        monkeypatch.setattr(driver, "_active", NoGPU(generation))
        monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", asked)
        monkeypatch.setattr(backends, "attend_kernel", None)  # else the backend refuses the CPU
        monkeypatch.setattr(backends, "_device_facts", lambda device: (divmod(generation, 10), 132))
        return found

    return put


def batch_of(prepared: PreparedCase, lengths: Sequence[tuple[int, int]], *, tree: bool = False) -> AttentionBatch:
    """(cached, new) tokens of each row; of tensors the shapes and places are right, and nothing else."""
    q_lens = np.array([new for _, new in lengths], dtype=np.int32)
    kv_lens = np.array([sum(row) for row in lengths], dtype=np.int32)
    n, total, most = len(lengths), int(q_lens.sum()), int(q_lens.max())
    return AttentionBatch(
        mode=AttentionMode.EXTEND if tree or most > 1 else AttentionMode.DECODE,
        rows=torch.zeros(n, dtype=torch.int32),
        q_starts=torch.zeros(n + 1, dtype=torch.int32),
        kv_lens=torch.zeros(n, dtype=torch.int32),
        out_slots={name: torch.zeros(total, dtype=torch.int64) for name in prepared.pools},
        host=HostLengths(q_lens=q_lens, kv_lens=kv_lens),
        max_q=most,
        max_kv=int(kv_lens.max()),
        mask=TreeMask(among=torch.zeros(total, most, dtype=torch.bool)) if tree else None,
    )


def launch(prepared: PreparedCase, backend: TritonAttention, plan: Any, tokens: int) -> None:
    """The first layer's attention: q, k and v are parts of one product."""
    layer, dtype = prepared.case.layers[0], prepared.case.dtype
    sizes = (
        (layer.num_heads, layer.head_size),
        (layer.num_kv_heads, layer.head_size),
        (layer.num_kv_heads, layer.v_head_size),
    )
    parts = torch.empty(tokens, sum(heads * size for heads, size in sizes), dtype=dtype).split_with_sizes(
        [heads * size for heads, size in sizes], dim=1
    )
    q, k, v = (part.view(tokens, *size) for part, size in zip(parts, sizes, strict=True))
    backend.attend(plan, layer, q, k, v, torch.empty(tokens, layer.num_heads, layer.v_head_size, dtype=dtype))


def made(prepared: PreparedCase) -> TritonAttention:
    backend = TritonAttention(prepared.context)
    backend.bind(prepared.pools)
    return backend


# Those that take most of all that the table has, with as many query heads for a KV head as a tile may have lines.
@pytest.mark.parametrize("generation", SHARED)
@pytest.mark.parametrize(
    ("head_size", "dtype", "kv_dtype", "lengths"),
    [
        pytest.param(128, BF16, BF16, CHUNK, id="128 chunk"),
        pytest.param(256, BF16, BF16, CHUNK, id="256 chunk"),
        pytest.param(256, BF16, FP32, CHUNK, id="256 chunk, keys of four bytes"),
        pytest.param(512, BF16, BF16, CHUNK, id="512 chunk"),
        pytest.param(512, BF16, BF16, DECODE, id="512 decode"),
        pytest.param(512, FP32, FP32, CHUNK, id="512 chunk of four bytes"),
        pytest.param(512, FP32, FP32, DECODE, id="512 decode of four bytes"),
    ],
)
def test_a_program_has_the_memory_that_it_takes(
    generation: int,
    head_size: int,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    lengths: Sequence[tuple[int, int]],
    compiled_on: Callable[[int], dict[str, Variant]],
) -> None:
    found = compiled_on(generation)
    case = AttentionCase(
        lengths=((0, 1),),
        layout=NHD_PAGED,
        num_heads=64,
        num_kv_heads=1,
        head_size=head_size,
        dtype=dtype,
        kv_dtype=kv_dtype,
        page_size=16,
    )
    prepared = prepare(case)
    backend, batch = made(prepared), batch_of(prepared, lengths)
    launch(prepared, backend, backend.plan(batch), lengths[0][1])
    (attend,) = (variant for variant in found.values() if variant.name == "attend_kernel")
    shared, columns = attend.memory(generation)
    assert shared <= 0.95 * SHARED[generation]
    assert columns <= COLUMNS


def test_a_run_compiles_few_kernels_whatever_its_batches(compiled_on: Callable[[int], dict[str, Variant]]) -> None:
    """Of the kernel of attention, one for each of: rows of one new token that have a batch for themselves, or stand among
    longer ones; tiles for a few tokens, or for many; the same with a tree; and each with splits and without."""
    found = compiled_on(90)
    prepared = prepare(
        AttentionCase(lengths=((0, 1),), layout=NHD_PAGED, num_heads=8, num_kv_heads=2, head_size=64, dtype=FP16)
    )
    backend = made(prepared)

    def run(lengths: Sequence[tuple[int, int]], *, tree: bool = False) -> None:
        batch = batch_of(prepared, lengths, tree=tree)
        launch(prepared, backend, backend.plan(batch), int(batch.host.q_lens.sum()))

    def kernels() -> dict[str, int]:
        names = [variant.name for variant in found.values()]
        return {name: names.count(name) for name in sorted(set(names))}

    for rows in (1, 2, 3, 16, 17, 256):
        for cached in (0, 15, 100, 4000):
            run([(cached, 1)] * rows)
        plan = backend.plan_graph(batch_of(prepared, [(0, 1)] * rows), GraphShape(rows=rows, max_kv=8192))
        backend.in_graph(plan)
        launch(prepared, backend, plan, rows)
    assert kernels() == {"attend_kernel": 2, "reduce_kernel": 1, "split_length_kernel": 1, "write_kernel": 1}
    for rows in (1, 3, 16):
        for new in (2, 3, 8, 16, 17, 300):
            for cached in (0, 16, 4001):
                run([(cached, new)] * rows)
    assert kernels() == {"attend_kernel": 6, "reduce_kernel": 3, "split_length_kernel": 3, "write_kernel": 1}
    for many in (1, 2, 16, 300):
        for new in (5, 16, 3000):
            run([(4000, 1)] * many + [(3, new)])
            run([(1, 1)] * many + [(3, new)])
    assert kernels() == {"attend_kernel": 8, "reduce_kernel": 4, "split_length_kernel": 4, "write_kernel": 1}
    for rows in (1, 3, 64):
        for new in (1, 2, 7, 16, 33):
            for cached in (16, 4001):
                run([(cached, new)] * rows, tree=True)
                run([(cached, 1), *[(cached, new)] * rows], tree=True)
    assert kernels() == {"attend_kernel": 12, "reduce_kernel": 6, "split_length_kernel": 6, "write_kernel": 1}


def test_keys_of_eight_bits_are_taken_apart_by_the_hardware(compiled_on: Callable[[int], dict[str, Variant]]) -> None:
    """Compiled to the end: fp8 is what the interpreter lets pass and the compiler may not."""
    found = compiled_on(90)
    case = AttentionCase(
        lengths=((0, 1),),
        layout=NHD_PAGED,
        num_heads=32,
        num_kv_heads=8,
        head_size=128,
        window=100,
        soft_cap=30.0,
        dtype=BF16,
        kv_dtype=torch.float8_e4m3fn,
    )
    prepared = prepare(case)
    backend = made(prepared)
    launch(prepared, backend, backend.plan(batch_of(prepared, CHUNK)), CHUNK[0][1])
    (attend,) = (variant for variant in found.values() if variant.name == "attend_kernel")
    compiled = triton.compile(attend.source, target=GPUTarget("cuda", 90, 32), options=dict(attend.options))
    assert (compiled.metadata.shared / 1024, compiled.metadata.tmem_size or 0) == attend.memory(90)
