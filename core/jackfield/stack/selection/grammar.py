"""Which backend binds answers to grammars. A run can do without one; a backend that was named cannot be left out."""

from __future__ import annotations

from typing import NamedTuple

from jackfield.config.errors import ConfigurationError
from jackfield.config.names import NONE
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import Choice, Judge, Selector, described

TOKEN_MASKS = "token_masks"
"""Feature of a worker: `sample` takes `TokenMasks`."""


class GrammarChoice(NamedTuple):
    """choice: None for no backend. reason: why, where the operator left it open; None where they said it."""

    choice: Choice | None
    reason: str | None


def select_grammar(selector: Selector, args: ServerArgs, worker: PluginRow, judge: Judge) -> GrammarChoice:
    """Raises ConfigurationError for a backend that was named and cannot serve."""
    kind = KINDS["grammar"]
    source, name = selector.source(kind.field), args.plugin_for(kind.name)
    if args.grammar_backend == NONE:
        selector.set_aside(kind.name, f"{source} is none")
        return GrammarChoice(None, None)
    without = None
    if TOKEN_MASKS not in manifest_of(worker).features:
        without = f"{described(worker)} applies no token masks (feature {TOKEN_MASKS!r})"
    elif args.skip_tokenizer_init:
        without = "--skip-tokenizer-init leaves no vocabulary to say what a token stands for"
    if without is not None:
        if name is not None:
            raise ConfigurationError(f"{source}: {without}")
        selector.set_aside(kind.name, without)
        return GrammarChoice(None, without)
    if name is not None:
        return GrammarChoice(selector.named(kind.name, name, kind.field, judge), None)
    best = selector.best_if_any(kind.name, judge)
    return GrammarChoice(best, "no grammar plugin can serve here" if best is None else best.reason)
