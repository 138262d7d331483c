"""Write a GGUF file in another type, by llama.cpp's own quantiser.

    python requantise.py SOURCE.gguf TARGET.gguf BF16|Q8_0|Q4_0|Q4_1|Q4_K_M|Q6_K

Needs llama-cpp-python.
"""

from __future__ import annotations

import os
import sys

FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18, "BF16": 32}
"""llama.cpp's numbers (`llama_ftype`)."""


def requantise(source: str, target: str, kind: str, *, pure: bool = False) -> None:
    """pure: every matrix in this type, where llama.cpp would choose finer ones for some."""
    import llama_cpp as library

    parameters = library.llama_model_quantize_default_params()
    parameters.ftype, parameters.pure = FILE_TYPES[kind], pure
    parameters.nthread, parameters.allow_requantize = os.cpu_count() or 1, True
    if (code := library.llama_model_quantize(source.encode(), target.encode(), parameters)) != 0:
        raise SystemExit(f"llama.cpp could not write {target}: {code}")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in FILE_TYPES:
        raise SystemExit(__doc__)
    requantise(*sys.argv[1:])
