"""Rounds of a workload on an Engine in this process: what each took, from the call to the last token.

Greedy, without the end token, each round on an empty prefix cache. One request is streamed, so that the first token and the
others can be told apart; many are handed in together and waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from jackfield.entrypoints.bench.summary import distribution, summary
from jackfield.entrypoints.bench.usage import Usage
from jackfield.entrypoints.bench.workloads import Workload

FLUSH_SECONDS = 60.0
"""Longest wait for an engine that is idle already, but for what runs behind the last answer."""

FIGURES = {
    "decode_tokens_per_s": ("tokens/s", "higher"),
    "prefill_tokens_per_s": ("tokens/s", "higher"),
    "output_tokens_per_s": ("tokens/s", "higher"),
    "total_tokens_per_s": ("tokens/s", "higher"),
    "ttft_s": ("s", "lower"),
    "wall_s": ("s", "lower"),
}
"""Figure of a round -> its unit, and which side is better."""

Tell = Callable[[str, int, int], None]

Measured = tuple[list[dict[str, Any]], list[dict[str, Any]]]


class Generator(Protocol):
    """As much of `Engine` as is needed."""

    @property
    def vocab_size(self) -> int: ...

    def generate(self, *, input_ids: Any, sampling_params: Any, stream: Any = ...) -> Any: ...

    def flush_cache(self, timeout: float = ...) -> None: ...


def measure(
    engine: Generator, work: Workload, repeat: int, *, most_noise: float | None, tries: int, tell: Tell
) -> Measured:
    """The rounds, and those that were thrown away: a round during which others kept more than `most_noise` cores busy is tried
    again, at most `tries` times in all, and the least disturbed one counts. most_noise None: every round counts."""
    prompts, new = work.warm_up(engine.vocab_size)
    tell("warming up", 0, 1)
    one_round(engine, prompts, new)
    tell("warming up", 1, 1)
    kept: list[dict[str, Any]] = []
    thrown: list[dict[str, Any]] = []
    tell("rounds", 0, repeat)
    for number in range(repeat):
        found: list[dict[str, Any]] = []
        while len(found) < tries:
            found.append(
                {"round": number} | one_round(engine, work.prompts(number, engine.vocab_size), work.new_tokens)
            )
            if most_noise is None or (found[-1]["other_cores"] or 0.0) <= most_noise:
                break
        best = min(found, key=lambda one: one["other_cores"] or 0.0) if most_noise is not None else found[-1]
        kept.append(best)
        thrown += [one for one in found if one is not best]
        tell("rounds", number + 1, repeat)
    return kept, thrown


def results(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Figure -> its median over the rounds, with the spread."""
    return {
        name: summary([one[name] for one in rounds], unit, better)
        for name, (unit, better) in FIGURES.items()
        if all(one.get(name) is not None for one in rounds)
    }


def one_round(engine: Generator, prompts: list[list[int]], new: int) -> dict[str, Any]:
    """Figures of one round (FIGURES; of what cannot be told of it, nothing), and what it used. Raises RequestError, and
    RuntimeError when other tokens came back than were asked for."""
    engine.flush_cache(FLUSH_SECONDS)
    sampling = {"max_new_tokens": new, "temperature": 0, "ignore_eos": True}
    before = Usage.now()
    took = _streamed(engine, prompts[0], sampling) if len(prompts) == 1 else _together(engine, prompts, sampling)
    used = Usage.now().since(before)
    made, wanted = took.pop("made"), new * len(prompts)
    if made != wanted:
        raise RuntimeError(
            f"{made} new tokens came back where {wanted} were asked for, so nothing can be said of their speed"
        )
    given = sum(map(len, prompts))
    wall = took["wall_s"]
    return took | {
        "output_tokens_per_s": made / wall,
        "total_tokens_per_s": (given + made) / wall,
        "new_tokens": made,
        "prompt_tokens": given,
        **used,
    }


def _streamed(engine: Generator, prompt: list[int], sampling: dict[str, Any]) -> dict[str, Any]:
    """Tokens that come with the first answer are counted as the first: what follows is divided by the time after it."""
    seen: list[tuple[float, int]] = []
    meta: dict[str, Any] = {}
    began = time.perf_counter()
    for answer in engine.generate(input_ids=prompt, sampling_params=sampling, stream=True):
        meta = answer["meta_info"]
        seen.append((time.perf_counter(), meta["completion_tokens"]))
    wall = time.perf_counter() - began
    if not seen:
        raise RuntimeError("no token came back")
    (first, early), (last, made) = seen[0], seen[-1]
    took: dict[str, Any] = {
        "wall_s": wall,
        "ttft_s": first - began,
        "prefill_tokens_per_s": len(prompt) / (first - began),
        "made": made,
        "answers": len(seen),
        "cached_tokens": meta["cached_tokens"],
    }
    if made > early:
        took["decode_tokens_per_s"] = (made - early) / (last - first)
    return took


def _together(engine: Generator, prompts: list[list[int]], sampling: dict[str, Any]) -> dict[str, Any]:
    """Times to first tokens are the scheduler's: they end when it had the token, not when anybody could read it."""
    began = time.perf_counter()
    answers = engine.generate(input_ids=prompts, sampling_params=sampling)
    wall = time.perf_counter() - began
    metas = [answer["meta_info"] for answer in answers]
    times = [sum(meta["stage_times"][stage] for stage in ("tokenize", "queue", "prefill")) for meta in metas]
    waits = distribution(times)
    assert waits is not None
    return {
        "wall_s": wall,
        "ttft_s": waits["p50"],
        "ttft_of_requests_s": waits,
        "made": sum(meta["completion_tokens"] for meta in metas),
        "cached_tokens": sum(meta["cached_tokens"] for meta in metas),
    }
