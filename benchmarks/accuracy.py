"""How near Jackfield's numbers are to the float32 reference, and what packed weights cost in perplexity: ratios of one run.

    python benchmarks/accuracy.py --model-path FOLDER [--q8-0 FILE.gguf] [--q4-1 FILE.gguf] [--json] [JACKFIELD FLAG ...]

FOLDER is a Hugging Face checkpoint in bfloat16 (benchmarks/peers/setup.sh makes one, and the GGUF files). The texts are the
repository's own, in windows; the log-probabilities are those of the prompt that `Engine` gives. What is compared:

- bfloat16 against transformers in float32, beside transformers' own bfloat16: mean KL divergence, over the
  likeliest tokens of each position and one bin for all others, and the greatest difference of a log-probability among them.
  Each as a ratio, ours over theirs.
- perplexity with int8 weights and activations, and with Q8_0 weights, over that of bfloat16: within 1 %.
- perplexity with the Q4_1 weights as they are, over that of the same weights decoded: within 0.1 %. Both in float32, because
  bfloat16 alone makes half a per cent of difference between two ways to cut the same prompt into steps.

Packed weights are measured twice, because many tokens at once and a token by itself may be multiplied in different ways: with the
prompt in few steps, and (`..._steps`) with the beginning of each window cut into steps of one token.

Says nothing of speed. A form that no installed operators take is told as refused.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figure, report
from numpy.typing import NDArray

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import ArgumentParser, add_server_args, parse_server_args
from jackfield.config.server_args import ServerArgs

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("LICENSE", "docs/architecture.md")

LIKELIEST = 256
"""Tokens of each position that are compared one by one."""

STEPS = {"chunked_prefill_size": 1, "page_size": 1, "max_running_requests": 1}
"""Settings under which each token of a prompt is a step of its own."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Log-probabilities of one run of tokens: `chosen` [n - 1] of each token but the first; `likeliest` the ids [n - 1, k] and
    `values` theirs."""

    chosen: Floats
    likeliest: NDArray[np.int64]
    values: Floats

    def beginning(self, tokens: int) -> Window:
        """Of the first tokens: what comes after them changes nothing."""
        return Window(self.chosen[: tokens - 1], self.likeliest[: tokens - 1], self.values[: tokens - 1])


def perplexity(windows: Sequence[Window]) -> float:
    return math.exp(-float(np.concatenate([window.chosen for window in windows]).mean()))


def divergence(reference: Floats, other: Floats) -> Floats:
    """Kullback-Leibler divergence of each position, in nats. float64 [n, k] log-probabilities of the same tokens; all the tokens
    that are not among them are one more. Never more than that of the whole distributions."""
    p, q = (np.concatenate([np.exp(side), _rest(side)], axis=1) for side in (reference, other))
    found: Floats = (p * (np.log(p) - np.log(q))).sum(axis=1)
    return found


def _rest(logprobs: Floats) -> Floats:
    """What is left of 1 [n, 1], at least what float32 can tell apart from nothing."""
    return np.maximum(1 - np.exp(logprobs).sum(axis=1, keepdims=True), 1e-7)


def windows_of(texts: Sequence[Path], folder: str, length: int, most: int) -> list[list[int]]:
    """Token ids of the texts, in whole windows, taken from each text in turn."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text.read_text())["input_ids"] for text in texts]
    cut = [[one[at : at + length] for at in range(0, len(one) - length + 1, length)] for one in ids]
    turns = [window for several in _in_turn(cut) for window in several][:most]
    if not turns:
        raise SystemExit(f"no text has {length} tokens: {', '.join(map(str, texts))}")
    return turns


def _in_turn(lists: Sequence[list[list[int]]]) -> Iterator[list[list[int]]]:
    for number in range(max(map(len, lists))):
        yield [one[number] for one in lists if number < len(one)]


def of_transformers(folder: str, dtype: str, windows: Sequence[Sequence[int]]) -> list[Floats]:
    """Log-probabilities of the whole vocabulary, float32 [n - 1, vocab] a window."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    found = []
    with torch.inference_mode():
        for ids in windows:
            logits = model(torch.tensor([ids])).logits[0, :-1]
            found.append(torch.log_softmax(logits.float(), dim=-1).numpy())
    return found


def of_jackfield(args: ServerArgs, windows: Sequence[Sequence[int]], **changes: Any) -> tuple[list[Window], str]:
    """The windows, and the stack's hash. Raises ConfigurationError for what no installed plugins can do."""
    from jackfield import Engine

    given = args.model_copy(
        update={
            "max_top_logprobs": LIKELIEST,
            "max_prompt_logprob_values": (LIKELIEST + 1) * sum(len(ids) for ids in windows),
            "throughput_log_interval": 0,
            "dtype": "bfloat16",
            **changes,
        }
    )
    with Engine.from_server_args(given) as engine:
        answers = engine.generate(
            input_ids=[list(ids) for ids in windows],
            sampling_params={"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
            return_logprob=True,
            logprob_start_len=0,
            top_logprobs_num=LIKELIEST,
        )
        stack: str = engine.get_server_info()["stack"]["hash"]
    return [_window(answer["meta_info"]) for answer in answers], stack


def _window(meta: dict[str, Any]) -> Window:
    top = meta["input_top_logprobs"][1:]  # nothing comes before the first token
    return Window(
        chosen=np.array([entry[0] for entry in meta["input_token_logprobs"][1:]], dtype=np.float64),
        likeliest=np.array([[entry[1] for entry in entries] for entries in top]),
        values=np.array([[entry[0] for entry in entries] for entries in top], dtype=np.float64),
    )


def apart(exact: Floats, other: Floats, count: int = LIKELIEST // 2) -> Floats:
    """Greatest difference [n] of a log-probability at each position, among the tokens that are likeliest by `exact`; both
    [n, vocab]. What is not a number in `other` is left out."""
    best = np.argpartition(-exact, count, axis=1)[:, :count]
    found: Floats = np.nanmax(np.abs(np.take_along_axis(exact, best, 1) - np.take_along_axis(other, best, 1)), axis=1)
    return found


def against_reference(
    windows: Sequence[Sequence[int]], ours: Sequence[Window], reference: Sequence[Floats], theirs: Sequence[Floats]
) -> dict[str, Figure]:
    """ours, theirs: in bfloat16. The divergence looks at our likeliest tokens, of all three. The greatest difference of a whole
    text is told only: one early position, where the model is on a knife's edge, makes it, by luck and for everybody."""
    sides: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("kl", "apart", "most", "nll")}
    exact_nll = []
    for ids, window, exact, other in zip(windows, ours, reference, theirs, strict=True):
        targets = np.array(ids[1:])[:, None]
        exact_nll.append(-float(np.take_along_axis(exact, targets, 1).mean()))
        own = np.full(exact.shape, np.nan)
        np.put_along_axis(own, window.likeliest, window.values, 1)
        expected = np.take_along_axis(exact, window.likeliest, 1).astype(np.float64)
        for which, logprobs in enumerate((own, other)):
            chosen = window.chosen if logprobs is own else np.take_along_axis(other, targets, 1)
            likeliest = np.take_along_axis(logprobs, window.likeliest, 1).astype(np.float64)
            difference = apart(exact, logprobs)
            sides["nll"][which].append(-float(chosen.mean()))
            sides["kl"][which].append(float(divergence(expected, likeliest).mean()))
            sides["apart"][which].append(float(difference.mean()))
            sides["most"][which].append(float(difference.max()))
    ours_over, theirs_over = (math.exp(float(np.mean(side) - np.mean(exact_nll))) for side in sides["nll"])
    what = "difference of a log-probability from float32, ours over transformers'"
    return {
        "bf16_kl": _ratio("mean KL divergence from float32, ours over transformers'", "<= 1.05", *sides["kl"]),
        "bf16_difference": _ratio(f"mean over positions of the greatest {what}", "<= 1.05", *sides["apart"]),
        "bf16_greatest": _ratio(f"greatest {what}", "", *sides["most"], of=np.max),
        "bf16_perplexity": Figure(
            what="perplexity, over float32's (b: transformers' own bfloat16)",
            value=ours_over,
            unit="ratio",
            values=[ours_over],
            b=[theirs_over],
        ),
    }


def _ratio(what: str, target: str, ours: list[float], theirs: list[float], of: Any = np.mean) -> Figure:
    """of: what makes one number of the windows'."""
    value = float(of(ours)) / float(of(theirs))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    met = value <= float(target.split()[1]) if target else None
    return Figure(
        what=what, value=value, unit="ratio (sides: nats)", values=ratios, target=target, met=met, a=ours, b=theirs
    )


def within(what: str, ours: Sequence[Window], base: Sequence[Window], share: float) -> Figure:
    """Perplexity over that of other weights, and whether it is within such a share of it."""
    a, b = ([perplexity([window]) for window in side] for side in (ours, base))
    value = perplexity(ours) / perplexity(base)
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    target = f"1 ± {share:g}"
    return Figure(
        what=what,
        value=value,
        unit="ratio (sides: perplexity)",
        values=ratios,
        target=target,
        met=abs(value - 1) <= share,
        a=a,
        b=b,
    )


def measure(given: argparse.Namespace, args: ServerArgs) -> tuple[dict[str, Figure], dict[str, str], dict[str, str]]:
    """Figures, stacks by form, and the reasons of what was refused."""
    assert args.model_path is not None
    windows = windows_of(given.text, args.model_path, given.length, given.windows)
    figures: dict[str, Figure] = {}
    stacks: dict[str, str] = {}
    refused: dict[str, str] = {}

    def run(form: str, windows: Sequence[Sequence[int]] = windows, **changes: Any) -> list[Window] | None:
        try:
            found, stacks[form] = of_jackfield(args, windows, **changes)
        except ConfigurationError as error:
            refused[form] = str(error)
            return None
        return found

    def packed(form: str, base: Sequence[Window], share: float, beside: str, **changes: Any) -> None:
        """Both ways of a form, over `base`."""
        if (ours := run(form, **changes)) is None:
            return
        figures[form] = within(f"perplexity of {form}, over {beside}", ours, base, share)
        short = [ids[: given.steps] for ids in windows]
        if given.steps and (ours := run(f"{form} in steps", short, **changes, **STEPS)) is not None:
            begun = [window.beginning(given.steps) for window in base]
            figures[f"{form}_steps"] = within("the same, each token a step of its own", ours, begun, share)

    plain = run("bf16", quantization="none")
    if plain is not None:
        reference, theirs = (of_transformers(args.model_path, dtype, windows) for dtype in ("float32", "bfloat16"))
        figures |= against_reference(windows, plain, reference, theirs)
        del reference, theirs
        packed("w8a8_int8", plain, 0.01, "bfloat16's", quantization="w8a8_int8")
        if given.q8_0:
            packed("q8_0", plain, 0.01, "bfloat16's", quantization="gguf", model_path=given.q8_0)
    exact = {"model_path": given.q4_1, "dtype": "float32"}
    if given.q4_1 and (decoded := run("q4_1 decoded", quantization="none", **exact)) is not None:
        packed("q4_1", decoded, 0.001, "that of the same weights decoded", quantization="gguf", **exact)
    return figures, stacks, refused


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--q8-0", metavar="FILE", help="the model in Q8_0")
    parser.add_argument("--q4-1", metavar="FILE", help="the model in Q4_1")
    parser.add_argument("--text", type=Path, nargs="+", default=[ROOT / text for text in TEXTS], metavar="FILE")
    parser.add_argument("--length", type=int, default=1024, metavar="TOKENS", help="of a window (default 1024)")
    parser.add_argument("--windows", type=int, default=8, metavar="N", help="most windows (default 8)")
    parser.add_argument(
        "--steps", type=int, default=512, metavar="TOKENS", help="of each that go one by one (default 512; 0: none)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    add_server_args(parser)
    given = parser.parse_args(argv)
    args, _ = parse_server_args(given, os.environ)
    if args.model_path is None:
        parser.error("--model-path names the Hugging Face folder in bfloat16")
    figures, stacks, refused = measure(given, args)
    if given.json:
        results = {name: asdict(figure) for name, figure in figures.items()}
        json.dump({"results": results, "stacks": stacks, "refused": refused}, sys.stdout, indent=2)
        print()
    else:
        report(None, figures, as_json=False, packages=())
        for form, reason in refused.items():
            print(f"{form:28} refused: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
