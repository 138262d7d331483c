"""What a client is told of a grammar that could not be had or kept to. A backend's own words reach nobody but the log, those of a
GrammarError apart."""

from __future__ import annotations

GRAMMAR_FAILED = "The grammar could not be compiled."
LEFT_GRAMMAR = "The answer could not be kept to its grammar."
DEAD_END = "The grammar allows nothing more that the model's tokens can write, and is not complete."
UNAVAILABLE = "The grammar compiler is not available now. Try again later."
TOO_MUCH_MEMORY = "The grammar takes too much memory to compile (--grammar-compile-memory). Make it simpler."


def too_slow(seconds: float) -> str:
    """seconds: how long it may take."""
    return f"The grammar took longer than {seconds:g} s to compile (--grammar-compile-timeout). Make it simpler."


def refusal(what: str, message: str, keyword: str) -> str:
    """What a backend found in a spec. what: the field that it came in."""
    return f"{what}: {message}" + (f" (at {keyword})" if keyword and keyword not in message else "")
