"""Observer `sqlite`."""

from __future__ import annotations

from jackfield.hookspecs import ObserverContext, hookimpl
from sqlite_observer.options import SqliteOptions


@hookimpl
def jackfield_observer(context: ObserverContext) -> object:
    from sqlite_observer.observer import SqliteObserver

    if not isinstance(context.options, SqliteOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return SqliteObserver(context.options, context.process.stack_hash)
