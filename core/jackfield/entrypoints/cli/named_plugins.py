"""Which plugins a command line names, together with the environment and the stack file: read before the line itself is.

Knows only what names plugins; all else on the line is the real parser's. Imports no plugin.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from jackfield.hookspecs.kinds import KINDS, Kind
from jackfield.stack.names import normalise_name

if TYPE_CHECKING:
    from jackfield.config.server_args import ServerArgs
    from jackfield.stack.discovery.catalogue import Catalogue, PluginRow


class Named:
    """What the line, the environment and the stack file name. Looks for plugins when it is asked about one."""

    def __init__(self, args: ServerArgs) -> None:
        self.args = args

    @cached_property
    def catalogue(self) -> Catalogue:
        from jackfield.stack.discovery.scan import discover
        from jackfield.stack.selection.access import Access

        return Access(deny=self.args.plugin_deny).settled(discover(files=self.args.plugin))

    def instances(self) -> list[tuple[str, str]]:
        """(kind, instance) of every plugin that is named and can be used."""
        found: dict[tuple[str, str], None] = {}
        for kind in KINDS.values():
            for instance in self._of(kind):
                if self.row(kind.name, instance) is not None:
                    found[kind.name, instance] = None
        return list(found)

    def row(self, kind: str, instance: str) -> PluginRow | None:
        """The healthy plugin behind an instance: the named use, else the installed plugin of that name."""
        name = self._of(KINDS[kind]).get(normalise_name(instance), instance)
        return next((row for row in self.catalogue.find(kind, name) if row.status.value == "ok"), None)

    def known(self, kind: str) -> list[str]:
        """Instances that are named, and plugins that are there."""
        return list(dict.fromkeys([*self._of(KINDS[kind]), *self.catalogue.names(kind)]))

    def _of(self, kind: Kind) -> dict[str, str]:
        """Instance -> plugin, as they are named."""
        if not kind.exclusive:
            from jackfield.config.names import AUTO

            return {use.instance: use.plugin for use in self.args.uses(kind.name) if use.plugin != AUTO}
        phases = tuple(kind.parts) or (None,)
        names = [self.args.plugin_for(kind.name, phase) for phase in phases]
        return {name: name for name in names if name is not None}


def read_named(words: Sequence[str], environ: Mapping[str, str]) -> Named:
    """Raises ConfigurationError."""
    from jackfield.config.flags import add_server_args, stack_of
    from jackfield.config.sources import load_server_args

    # Only what names plugins; all else is for the real parser, with its own messages.
    fields = {
        "plugin",
        "plugin_deny",
        *(field for kind in KINDS.values() for field in kind.fields),
    }
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_server_args(parser, only=fields)
    kept = [word for word in before_positionals(words) if word not in ("-h", "--help")]
    try:
        given = vars(parser.parse_known_args(kept)[0])
    except argparse.ArgumentError:
        given = {}
    values = {name: value for name, value in given.items() if name in fields}
    args, _ = load_server_args(values, environ, stack_of(given))
    return Named(args)


def before_positionals(words: Sequence[str]) -> list[str]:
    """The words up to "--", behind which there are no flags."""
    return list(words[: words.index("--")] if "--" in words else words)
