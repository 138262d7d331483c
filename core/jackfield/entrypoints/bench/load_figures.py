"""What the answers of one round say together: latencies, throughput, goodput, failures.

TTFT is the time to the first token and E2E that to the end of the stream, both from when the request was due. ITL, the time
between two tokens: a gap between two arrivals is divided by the tokens that the later one brought, and counts once for each of
them; the gaps as they are, which a reader sees, are told beside it. TPOT is the mean of a request: from its first arrival to
its last, over the tokens after the first arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.entrypoints.bench.streams import Answer
from jackfield.entrypoints.bench.summary import distribution, summary

LATENCIES = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "gap_ms")

RATES = {
    "output_tokens_per_s": "tokens/s",
    "total_tokens_per_s": "tokens/s",
    "requests_per_s": "requests/s",
    "goodput_per_s": "requests/s",
}

TOLD_PERCENTILES = ("p50", "p90", "p99")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request must keep to count as good, in milliseconds; None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def facts(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def met(self, times: Mapping[str, float]) -> bool:
        """times: of one request; one token alone has no tpot_ms, and keeps any limit of it."""
        return all(times.get(name, 0.0) <= most for name, most in self.facts().items())


def times_of(answer: Answer) -> dict[str, float]:
    """ttft_ms, e2e_ms and, if more than one arrival had tokens, tpot_ms."""
    (first, early), (last, _) = answer.arrivals[0], answer.arrivals[-1]
    times = {"ttft_ms": 1000 * (first - answer.due), "e2e_ms": 1000 * (answer.ended - answer.due)}
    if last > first:
        times["tpot_ms"] = 1000 * (last - first) / (answer.tokens - early)
    return times


def figures(answers: Sequence[Answer], limits: Limits) -> dict[str, Any]:
    """All that one round says. answers: of all its requests, the failed ones too; at least one."""
    good = [answer for answer in answers if answer.failure is None]
    seconds = max(answer.ended for answer in answers) - min(answer.due for answer in answers)
    times = [times_of(answer) for answer in good]
    gaps, itl = _gaps(good)
    # What a failed stream brought until then was made and sent, too, but nobody can use it.
    tokens = sum(answer.tokens for answer in good)
    prompts = [answer.prompt_tokens for answer in good if answer.prompt_tokens is not None]
    told: dict[str, Any] = {
        "requests": len(answers),
        "completed": len(good),
        "failures": failures(answers),
        "short_answers": sum(round(answer.tokens) < answer.wanted for answer in good),
        "seconds": seconds,
        "output_tokens": tokens,
        "prompt_tokens": sum(prompts) if len(prompts) == len(good) else None,
        "cached_tokens": sum(answer.cached_tokens or 0 for answer in good),
        "tokens_per_arrival": tokens / arrived if (arrived := sum(len(answer.arrivals) for answer in good)) else None,
        "counted_by": dict(Counter(answer.counted for answer in good)),
        "output_tokens_per_s": tokens / seconds,
        "requests_per_s": len(good) / seconds,
        "late_ms": distribution([1000 * (answer.sent - answer.due) for answer in answers]),
        "ttft_ms": distribution([one["ttft_ms"] for one in times]),
        "itl_ms": distribution(itl),
        "tpot_ms": distribution([one["tpot_ms"] for one in times if "tpot_ms" in one]),
        "e2e_ms": distribution([one["e2e_ms"] for one in times]),
        "gap_ms": distribution(gaps),
    }
    if told["prompt_tokens"] is not None:
        told["total_tokens_per_s"] = (told["prompt_tokens"] + tokens) / seconds
    if limits.facts():
        told["goodput_per_s"] = sum(map(limits.met, times)) / seconds
        told["good_share"] = sum(map(limits.met, times)) / len(answers)
    return told


def results(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figure -> its median over the rounds: rates, and percentiles of latencies as `ttft_ms_p50`. Those that a round lacks,
    because nothing came of it, are left out."""
    found = {}
    for name, unit in RATES.items():
        if all(one.get(name) is not None for one in rounds):
            found[name] = summary([one[name] for one in rounds], unit, "higher")
    for name in LATENCIES:
        if all(one[name] is not None for one in rounds):
            for percent in TOLD_PERCENTILES:
                found[f"{name}_{percent}"] = summary([one[name][percent] for one in rounds], "ms", "lower")
    return found


def failures(answers: Sequence[Answer]) -> dict[str, Any]:
    """Kind -> how many, and the first message of it."""
    found: dict[str, Any] = {}
    for answer in answers:
        if answer.failure is not None:
            kind, message = answer.failure
            found.setdefault(kind, {"count": 0, "first": message})["count"] += 1
    return found


def _gaps(answers: Sequence[Answer]) -> tuple[list[float], list[float]]:
    """Milliseconds between two arrivals, and the same for each token."""
    gaps, itl = [], []
    for answer in answers:
        for (before, _), (when, tokens) in zip(answer.arrivals, answer.arrivals[1:], strict=False):
            gap = 1000 * (when - before)
            gaps.append(gap)
            # Where the usage at the end was spread, a chunk may have a part of a token: it counts as one at least.
            itl += [gap / tokens] * max(1, round(tokens))
    return gaps, itl
