"""llama.cpp, through llama-cpp-python's low-level calls: one loop over up to 32 sequences, greedy.

The shared prefix is computed once and shared by this script (`llama_memory_seq_cp` in one unified cache); what llama.cpp's server
would do with requests that arrive together is not measured.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

from measuring import Times, measure, parser
from workloads import WORKLOADS

BATCH, MICRO_BATCH = 2048, 512
"""Most tokens of a call, and of what it computes at once (llama.cpp's own defaults)."""


class Sequences:
    """A model and a context for the requests of one workload."""

    def __init__(self, path: str, test: str, threads: int) -> None:
        import llama_cpp as library

        self.library, self.test = library, test

        @library.llama_log_callback  # type: ignore[untyped-decorator]
        def silent(*_: Any) -> None:
            pass

        self._silent = silent  # the library keeps the pointer only
        library.llama_log_set(silent, None)
        library.llama_backend_init()
        self._model = library.llama_model_load_from_file(path.encode(), library.llama_model_default_params())
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self._model))
        work = WORKLOADS[test]
        cells = work.shared + work.requests * (work.prompt - work.shared + work.new) + 64
        parameters = library.llama_context_default_params()
        parameters.n_ctx = cells if work.shared else work.requests * (work.prompt + work.new)
        parameters.n_batch, parameters.n_ubatch, parameters.n_seq_max = BATCH, MICRO_BATCH, work.requests
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.kv_unified = work.shared > 0  # sequences then share cells without a copy
        self._context = library.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise SystemExit(f"llama.cpp can make no context of {parameters.n_ctx} tokens")
        self._memory = library.llama_get_memory(self._context)
        self._batch = library.llama_batch_init(BATCH, 0, 1)

    def run(self, prompts: list[list[int]], new: int) -> Times:
        self.library.llama_memory_clear(self._memory, False)
        length, shared = len(prompts[0]), WORKLOADS[self.test].shared
        began = time.perf_counter()
        if shared:
            self._compute([(token, at, 0, False) for at, token in enumerate(prompts[0][:shared])])
            for sequence in range(1, len(prompts)):
                self.library.llama_memory_seq_cp(self._memory, 0, sequence, 0, shared)
        following = self._compute(
            [
                (token, at, sequence, at == length - 1)
                for sequence, prompt in enumerate(prompts)
                for at, token in enumerate(prompt)
                if at >= shared
            ]
        )
        first = time.perf_counter() - began
        for step in range(new - 1):
            following = self._compute([(following[s], length + step, s, True) for s in range(len(prompts))])
        return Times(first=first, last=time.perf_counter() - began)

    def _compute(self, rows: list[tuple[int, int, int, bool]]) -> dict[int, int]:
        """rows: token, position, sequence, whether its logits are wanted. Gives the likeliest next tokens, by sequence."""
        import numpy as np

        found = {}
        for begin in range(0, len(rows), BATCH):
            part, batch = rows[begin : begin + BATCH], self._batch
            for index, (token, position, sequence, wanted) in enumerate(part):
                batch.token[index], batch.pos[index], batch.logits[index] = token, position, wanted
                batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.n_tokens = len(part)
            if (code := self.library.llama_decode(self._context, batch)) != 0:
                raise SystemExit(f"llama_decode gave {code}")
            for index, (_, _, sequence, wanted) in enumerate(part):
                if wanted:
                    pointer = ctypes.cast(
                        self.library.llama_get_logits_ith(self._context, index), ctypes.POINTER(ctypes.c_float)
                    )
                    found[sequence] = int(np.ctypeslib.as_array(pointer, (self.vocabulary,)).argmax())
        return found


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--model", required=True, help="a GGUF file")
    given = arguments.parse_args()
    sequences = Sequences(given.model, given.test, given.threads)
    measure(given, sequences.run, adapter="llama.cpp", version=sequences.library.__version__)


if __name__ == "__main__":
    main()
