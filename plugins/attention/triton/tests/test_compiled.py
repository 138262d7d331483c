"""The kernel compiled for GPUs, which takes none: what the interpreter lets pass, types above all, the compiler does not."""

from __future__ import annotations

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from jackfield_attention_triton.kernels.attend import attend_kernel
from jackfield_attention_triton.tuning import tuning_for

INTS = {"q_stride", "key_stride", "value_stride", "table_stride", "among_stride", "splits"}
SHARED = {80: 163, 90: 227}  # KiB that one program may have


@pytest.mark.parametrize(
    ("generation", "pages", "fp8", "tree", "window"),
    [(90, "fp8e4nv", "", False, 100)],
    ids=["fp8 by the hardware, window"],
)
def test_it_compiles(generation: int, pages: str, fp8: str, tree: bool, window: int) -> None:
    blocks = tuning_for(divmod(generation, 10), 132, 128, 2, 64).extend
    constants = {
        "SHARE": 4,
        "KV_HEADS": 8,
        "HEAD_SIZE": 128,
        "V_HEAD_SIZE": 128,
        "HEAD_BLOCK": 128,
        "V_BLOCK": 128,
        "BLOCK_M": blocks.lines,
        "BLOCK_Q": blocks.lines // 4,
        "BLOCK_N": blocks.keys,
        "TILE_HEADS": 4,
        "WINDOW": window,
        "CAUSAL": not tree,
        "TREE": tree,
        "SOFT_CAP": 30.0,
        "FP8": fp8,
        "TILED": True,
        "SPLIT": tree,
        "UPCAST": False,
        **({} if tree else {"parts": None, "marks": None, "split_length": None, "among": None}),
    }
    pointers = {"q": "*bf16", "out": "*bf16", "keys": f"*{pages}", "values": f"*{pages}", "among": "*u8"}
    types = {
        **dict.fromkeys(("table", "rows", "q_starts", "kv_lens", "tiles", "split_length"), "*i32"),
        **dict.fromkeys(("parts", "marks"), "*fp32"),
        **dict.fromkeys(INTS, "i32"),
        **pointers,
        "scale": "fp32",
    }
    names = attend_kernel.arg_names
    source = ASTSource(
        fn=attend_kernel,
        signature={name: "constexpr" if name in constants else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    made = triton.compile(
        source,
        target=GPUTarget("cuda", generation, 32),
        options={"num_warps": blocks.warps, "num_stages": blocks.stages, "enable_fp_fusion": True},
    )
    assert made.metadata.shared <= SHARED[generation] * 1024
