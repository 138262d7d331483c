"""What a client asks of a server: prompts with the lengths that are wanted, made of a seed or read from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.entrypoints.bench.token_ids import token_ids
from jackfield.entrypoints.bench.workloads import PREFIX_SEED, PROMPT_SEED

Prompt = str | list[int] | list[dict[str, Any]]
"""A text, token ids, or the messages of a conversation."""

FIELDS = ("prompt", "messages", "prompt_tokens", "new_tokens", "arrival_s")

FAR_APART = 1_000_000
"""Between the seeds of two rounds: more prompts than a round has."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. new_tokens: how many are asked for; arrival_s: seconds after the start, None if the load decides."""

    prompt: Prompt
    new_tokens: int
    arrival_s: float | None = None


@dataclass(frozen=True)
class Length:
    """A count of tokens, or a range of which each request draws one."""

    least: int
    most: int

    @classmethod
    def read(cls, text: str) -> Length:
        """ "N" or "LOW:HIGH", both included. Raises ValueError."""
        low, colon, high = text.partition(":")
        length = cls(int(low), int(high if colon else low))
        if not 1 <= length.least <= length.most:
            raise ValueError(f"{text} is no count of 1 or more, nor a range LOW:HIGH of such")
        return length

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}:{self.most}"


def made(count: int, number: int, prompt: Length, new: Length, shared: int, seed: int, vocab_size: int) -> list[Ask]:
    """`count` prompts of token ids for round `number`; each round has others. shared: tokens that all of a round begin with."""
    if shared > prompt.least:
        raise ConfigurationError(
            f"--shared-prefix-tokens {shared} is more than the {prompt.least} tokens of the shortest prompt "
            "(--prompt-tokens counts the shared ones)"
        )
    draw = random.Random(f"{seed} {number}")
    begin = token_ids(shared, PREFIX_SEED + FAR_APART * seed + number, vocab_size)
    asks = []
    for row in range(count):
        own = draw.randint(prompt.least, prompt.most) - shared
        ids = token_ids(own, (PROMPT_SEED + FAR_APART * seed) * (number + 1) + row, vocab_size)
        asks.append(Ask(prompt=begin + ids, new_tokens=draw.randint(new.least, new.most)))
    return asks


def read(file: str, new: Length, seed: int, vocab_size: int, *, timed: bool) -> list[Ask]:
    """The lines of a JSONL file, each an object with `prompt` (text or token ids), `messages` or `prompt_tokens` (how many are
    to be made), perhaps `new_tokens`, and, where `timed`, `arrival_s`. Raises ConfigurationError naming the line."""
    try:
        # Not splitlines(): a text may hold U+2028 and its like as they are, and ends no line with them.
        lines = Path(file).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"bench: {file} cannot be read: {error}") from error
    draw = random.Random(f"{seed}")
    asks = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                asks.append(_ask(json.loads(line), draw, number, new, seed, vocab_size, timed))
            except ValueError as error:
                raise ConfigurationError(f"bench: {file}, line {number}: {error}") from error
    if not asks:
        raise ConfigurationError(f"bench: {file} has no requests")
    return sorted(asks, key=lambda ask: ask.arrival_s or 0.0)


def _ask(given: Any, draw: random.Random, number: int, new: Length, seed: int, vocab_size: int, timed: bool) -> Ask:
    """Raises ValueError."""
    if not isinstance(given, dict):
        raise ValueError("it is no JSON object")
    if unknown := [name for name in given if name not in FIELDS]:
        raise ValueError(f"there is no field {unknown[0]!r}{did_you_mean(unknown[0], FIELDS)}")
    prompts = [name for name in ("prompt", "messages", "prompt_tokens") if name in given]
    if len(prompts) != 1:
        raise ValueError("give one of prompt (a text or token ids), messages, and prompt_tokens (a count)")
    prompt = given[prompts[0]]
    if prompts[0] == "prompt_tokens":
        prompt = token_ids(_count(prompt, "prompt_tokens"), PROMPT_SEED + FAR_APART * seed + number, vocab_size)
    elif prompts[0] == "messages":
        if not _is_list_of(prompt, dict):
            raise ValueError("messages is no list of objects")
    elif not (isinstance(prompt, str) and prompt) and not _is_list_of(prompt, int):
        raise ValueError("prompt is neither a text nor a list of token ids")
    tokens = _count(given["new_tokens"], "new_tokens") if "new_tokens" in given else draw.randint(new.least, new.most)
    return Ask(prompt=prompt, new_tokens=tokens, arrival_s=_seconds(given.get("arrival_s")) if timed else None)


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise ValueError(f"arrival_s is {value!r}; in a trace each request has the seconds after the start")
    return float(value)


def _count(value: Any, name: str) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {value!r}; it is a whole number of 1 or more")
    return value


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(type(item) is kind for item in value)
