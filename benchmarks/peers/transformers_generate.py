"""Hugging Face transformers: `model.generate` on one static batch."""

from __future__ import annotations

import time
from typing import Any

from measuring import Times, measure, parser


class Arrivals:
    """A streamer that keeps the time of each step; its first call is the prompt."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def put(self, _: Any) -> None:
        self.at.append(time.perf_counter())

    def end(self) -> None:
        pass


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--model", required=True, help="a Hugging Face folder")
    arguments.add_argument("--dtype", default="bfloat16")
    given = arguments.parse_args()
    import torch
    import transformers

    torch.set_num_threads(given.threads)
    dtype = getattr(torch, given.dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=dtype).eval()

    def run(prompts: list[list[int]], new: int) -> Times:
        ids = torch.tensor(prompts)
        arrivals = Arrivals() if len(prompts) == 1 else None  # it streams no batch
        began = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=new,
                max_new_tokens=new,
                pad_token_id=2,
                streamer=arrivals,
            )
        ended = time.perf_counter()
        if made.shape[1] != ids.shape[1] + new:
            raise SystemExit(f"{made.shape[1] - ids.shape[1]} tokens came back, {new} were asked for")
        if arrivals is None:
            return Times(last=ended - began)
        return Times(first=arrivals.at[1] - began, last=arrivals.at[-1] - began)

    measure(given, run, adapter="transformers", version=transformers.__version__, dtype=given.dtype)


if __name__ == "__main__":
    main()
