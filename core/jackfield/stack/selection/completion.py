"""Arguments that nobody gave, filled in by rules; each with the rule that did it."""

from __future__ import annotations

from typing import Any

from jackfield.config.arg_types import CHUNKING_OFF
from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.stack.resolved import Change, ModelFacts

MOST_RUNNING = 256
"""Requests that run at once unless `--max-running-requests` or a small KV cache says otherwise."""


class Completion:
    """Collects the changes of one resolution."""

    def __init__(self, args: ServerArgs) -> None:
        self._args = args
        self._changes: dict[str, Change] = {}

    def fill(self, field: str, value: Any, rule: str) -> None:
        """Set a field. Raises ValueError if a rule already did."""
        if field in self._changes:
            raise ValueError(f"the argument {field!r} was filled in twice")
        self._changes[field] = Change(field=field, before=getattr(self._args, field), after=value, rule=rule)

    def fill_from_model(self, model: ModelFacts | None) -> None:
        """What the model and the size of the cache decide."""
        args = self._args
        if model is not None and args.context_length is None:
            self.fill(
                "context_length", model.config.context_length, f"the longest sequence that {model.config.source} allows"
            )
        if model is not None and args.served_model_name is None:
            self.fill("served_model_name", model.name, "the model's own name")
        if model is not None and model.pooling is not None and model.pooling.whole:
            self._fill_for_whole_prompts(model)
        if args.max_running_requests is None:
            if args.max_total_tokens is None:
                self.fill("max_running_requests", MOST_RUNNING, "the default")
            else:
                pages = args.max_total_tokens // args.page_size
                most = min(MOST_RUNNING, pages)
                self.fill(
                    "max_running_requests", most, f"at most {MOST_RUNNING}, and one page ({pages} in all) for each"
                )

    def _fill_for_whole_prompts(self, model: ModelFacts) -> None:
        """A prompt is never cut, and holds KV for its step alone. Raises ConfigurationError."""
        args, what = self._args, "a model that sees prompts whole"
        if args.chunked_prefill_size is None:
            self.fill("chunked_prefill_size", CHUNKING_OFF, f"{what} cannot have them cut")
        elif args.chunked_prefill_size != CHUNKING_OFF:
            raise ConfigurationError(
                f"--chunked-prefill-size {args.chunked_prefill_size}: {what} cannot have them cut; use {CHUNKING_OFF}, or leave "
                "it out"
            )
        if args.max_total_tokens is None:
            longest = args.context_length or model.config.context_length
            # Each prompt of a step may leave a part of its last page empty.
            slots = max(args.max_prefill_tokens, longest) + MOST_RUNNING * args.page_size
            pages = -(-slots // args.page_size)
            self.fill("max_total_tokens", pages * args.page_size, f"what a step takes: {what} keeps no KV beyond it")

    def changes(self) -> tuple[Change, ...]:
        """In the order of the fields."""
        order = list(ServerArgs.model_fields)
        return tuple(sorted(self._changes.values(), key=lambda change: order.index(change.field)))

    def completed(self) -> ServerArgs:
        """The arguments with the changes."""
        return self._args.model_copy(update={field: change.after for field, change in self._changes.items()})
