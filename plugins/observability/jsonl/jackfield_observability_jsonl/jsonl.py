"""Entry point of the observer `jsonl`. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackfield.hookspecs import ObserverContext, hookimpl

if TYPE_CHECKING:
    from jackfield_observability_jsonl.observer import JsonlObserver


@hookimpl
def jackfield_observer(context: ObserverContext) -> JsonlObserver:
    from jackfield_observability_jsonl.observer import JsonlObserver
    from jackfield_observability_jsonl.options import JsonlOptions
    from jackfield_observability_jsonl.run_log import make_directory

    options = context.options
    if not isinstance(options, JsonlOptions):
        raise TypeError(f"observer.{context.instance} wants JsonlOptions, got {type(options).__name__}")
    # Here, where an error stops the start: a log that nobody can write would be missed when it is wanted.
    make_directory(options.directory)
    return JsonlObserver(options)
