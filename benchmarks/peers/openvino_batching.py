"""OpenVINO GenAI: its continuous-batching pipeline on an exported model folder, with prefix caching.

Requests that are handed in together share no prefix there, so `--prime` runs one of them alone first; its time counts.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from measuring import Times, measure, parser

CACHE_GIB = 2


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--model", required=True, help="a folder that optimum-intel exported")
    arguments.add_argument("--prime", action="store_true", help="run the first prompt alone before the others")
    given = arguments.parse_args()
    import numpy as np
    import openvino
    import openvino_genai as genai

    scheduling = genai.SchedulerConfig()
    scheduling.cache_size, scheduling.enable_prefix_caching = CACHE_GIB, True
    scheduling.max_num_seqs, scheduling.max_num_batched_tokens = 32, 2048
    properties = {
        "INFERENCE_NUM_THREADS": given.threads,
        "INFERENCE_PRECISION_HINT": "bf16",
        "PERFORMANCE_HINT": "LATENCY",
    }
    pipeline = genai.ContinuousBatchingPipeline(given.model, scheduling, "CPU", properties)
    numbers = itertools.count()

    def submit(prompt: list[int], new: int) -> Any:
        """The handle must be kept: a request whose handle is dropped is cancelled."""
        wanted = genai.GenerationConfig()
        wanted.max_new_tokens = wanted.min_new_tokens = new
        wanted.ignore_eos, wanted.do_sample, wanted.num_beams = True, False, 1
        return pipeline.add_request(next(numbers), openvino.Tensor(np.array([prompt], dtype=np.int64)), wanted)

    def run(prompts: list[list[int]], new: int) -> Times:
        began = time.perf_counter()
        if given.prime:
            primer = submit(prompts[0], 1)
            while pipeline.has_non_finished_requests():
                pipeline.step()
            primer.read_all()
        handles = [submit(prompt, new) for prompt in prompts]
        first, last = None, 0.0
        while pipeline.has_non_finished_requests():
            pipeline.step()
            last = time.perf_counter() - began
            if first is None and handles[0].can_read():
                first = last
        made = sum(len(handle.read_all()[0].generated_ids) for handle in handles)
        if made != new * len(prompts):
            raise SystemExit(f"{made} tokens came back, {new * len(prompts)} were asked for")
        return Times(first=first, last=last)

    measure(given, run, adapter="openvino-genai", version=genai.__version__, primed=given.prime)


if __name__ == "__main__":
    main()
