"""What is asked of an engine in one round: how many prompts of which length, how many new tokens, which of them shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.token_ids import HIGH, token_ids

WARM_UP = 99
"""The round whose prompts warm up; measured rounds are 0, 1, ..."""

WARM_UP_REQUESTS, WARM_UP_TOKENS = 8, 8
"""Of a warm-up of many requests, which only has to touch every path of the code."""

PREFIX_SEED, PROMPT_SEED = 1_000_003, 7919

MOST_ROUNDS = 99


@dataclass(frozen=True, kw_only=True)
class Workload:
    """requests, prompt_tokens (of each, the shared ones included), new_tokens (of each), shared_prefix_tokens: counts.

    figure   the result that the workload is about
    """

    name: str
    requests: int
    prompt_tokens: int
    new_tokens: int
    shared_prefix_tokens: int
    figure: str

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        for field, least in (("requests", 1), ("prompt_tokens", 1), ("new_tokens", 1), ("shared_prefix_tokens", 0)):
            if (value := getattr(self, field)) < least:
                raise ConfigurationError(f"--{field.replace('_', '-')} is {value}; it must be at least {least}")
        if self.shared_prefix_tokens > self.prompt_tokens:
            raise ConfigurationError(
                f"--shared-prefix-tokens {self.shared_prefix_tokens} is more than the {self.prompt_tokens} tokens of a prompt "
                "(--prompt-tokens counts the shared ones)"
            )
        if self.figure == DECODE and (self.requests != 1 or self.new_tokens < 2):
            raise ConfigurationError(
                f"{self.name} measures the tokens after the first of one request: it needs --requests 1 and --new-tokens of 2 or "
                "more; for another shape take --workload batch"
            )
        if self.figure == PREFILL and self.requests != 1:
            raise ConfigurationError(
                f"{self.name} measures the time to the first token of one request: it needs --requests 1; for several take "
                "--workload batch"
            )
        if self.figure == START and (self.requests, self.new_tokens) != (1, 1):
            raise ConfigurationError(
                "first measures a start and one token: --requests and --new-tokens cannot be changed"
            )

    def prompts(self, number: int, vocab_size: int = HIGH) -> list[list[int]]:
        """The prompts of one round; each round has its own, so that nothing of one is in a cache for the next."""
        shared = token_ids(self.shared_prefix_tokens, PREFIX_SEED + number, vocab_size)
        own = self.prompt_tokens - self.shared_prefix_tokens
        return [shared + token_ids(own, PROMPT_SEED * (number + 1) + row, vocab_size) for row in range(self.requests)]

    def warm_up(self, vocab_size: int = HIGH) -> tuple[list[list[int]], int]:
        """Prompts and new tokens: a whole round for one request, a short one for many."""
        prompts = self.prompts(WARM_UP, vocab_size)[:WARM_UP_REQUESTS]
        return prompts, self.new_tokens if self.requests == 1 else min(self.new_tokens, WARM_UP_TOKENS)

    def facts(self) -> dict[str, Any]:
        return asdict(self)


DECODE, PREFILL, OUTPUT, START = "decode_tokens_per_s", "prefill_tokens_per_s", "output_tokens_per_s", "first_token_s"

WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        name: Workload(
            name=name, requests=count, prompt_tokens=prompt, new_tokens=new, shared_prefix_tokens=shared, figure=figure
        )
        for name, count, prompt, new, shared, figure in (
            ("decode", 1, 128, 128, 0, DECODE),
            ("prefill", 1, 1024, 1, 0, PREFILL),
            ("batch", 32, 256, 128, 0, OUTPUT),
            ("prefix", 32, 544, 64, 512, OUTPUT),
            ("first", 1, 16, 1, 0, START),
        )
    }
)


def workload(name: str, **changes: int | None) -> Workload:
    """The named one, with those of its counts changed that are given. Raises ConfigurationError."""
    given: dict[str, Any] = {field: value for field, value in changes.items() if value is not None}
    return replace(WORKLOADS[name], **given)
