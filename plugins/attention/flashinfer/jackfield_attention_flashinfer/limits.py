"""What FlashInfer's kernels can do, as far as it must be known before it is imported.

Sources: FlashInfer 0.7.4. The load loops of `attention/prefill.cuh` go over 64 numbers of a head at a time, and
`DISPATCH_HEAD_DIM` of `utils.cuh` names the sizes; `static_assert(sizeof(DTypeQ) == 2)` there leaves float32 out.
"""

from __future__ import annotations

HEAD_SIZES = (64, 128, 256)
LEAST_CAPABILITY = (8, 0)
LEAST_VERSION = (0, 7, 4)
CUDA_CORE_GROUPS = (1, 2, 3)
"""Query heads to a KV head with which the decode kernel without tensor cores is instantiated, and is the faster one. It has
more (4, 6, 8, 16), but there the tensor cores win."""
