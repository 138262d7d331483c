"""Which protocols a server speaks beside its own when nobody says so: a written list, as that of our distributions is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackfield.config.names import AUTO, PluginUse

OWN_ROUTES = ("anthropic", "ollama", "playground")


def with_own_routes(uses: Sequence[PluginUse], usable: Callable[[str], bool]) -> tuple[PluginUse, ...]:
    """`uses` with those of the project that are usable here in the place of "auto", each once."""
    named = {use.instance for use in uses}
    found: list[PluginUse] = []
    for use in uses:
        if use.plugin != AUTO:
            found.append(use)
            continue
        found += [PluginUse(plugin=name) for name in OWN_ROUTES if name not in named and usable(name)]
    return tuple(found)
