"""How a policy of this package gets its options."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from jackfield.hookspecs import PolicyContext

Options = TypeVar("Options", bound=BaseModel)


def options_of(context: PolicyContext, model: type[Options]) -> Options:
    """The context's options, or the model's defaults where it has none. Raises TypeError for another policy's."""
    if context.options is None:
        return model()
    if not isinstance(context.options, model):
        raise TypeError(f"{context.instance} wants {model.__name__}, got {type(context.options).__name__}")
    return context.options
