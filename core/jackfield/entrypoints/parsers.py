"""Makes the parsers of the main process from the loaded stack."""

from __future__ import annotations

import logging

from jackfield.entrypoints.guarded_parsers import GuardedReasoning, GuardedToolCalls, ParserGuard
from jackfield.hookspecs import Parser, ReasoningParser, ToolCallParser
from jackfield.managers.chat.parsers import Parsers
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.selection.parsers import WORDS

log = logging.getLogger(__name__)


def make_parsers(loaded: LoadedStack, chat_template: str, ledger: FaultLedger, meter: Meter) -> Parsers:
    """chat_template: the one in effect. Raises PluginLoadError if a plugin fails or gives the other sort of parser."""
    tool_calls: ToolCallParser | None = None
    reasoning: ReasoningParser | None = None
    for plugin in loaded.of("parser"):
        made: Parser = plugin.make({"chat_template": chat_template})
        guard = ParserGuard(plugin.selected.key, ledger, meter)
        for part in plugin.selected.phases:
            if part == "tool_calls" and isinstance(made, ToolCallParser):
                tool_calls = GuardedToolCalls(made, guard)
            elif part == "reasoning" and isinstance(made, ReasoningParser):
                reasoning = GuardedReasoning(made, guard)
            else:
                raise _other_sort(plugin, part, made)
            log.info("parser %s reads %s: %s", plugin.selected.name, WORDS[part], plugin.selected.reason)
    return Parsers(tool_calls=tool_calls, reasoning=reasoning)


def _other_sort(plugin: LoadedPlugin, part: str, made: Parser) -> PluginLoadError:
    sort = {"tool_calls": ToolCallParser, "reasoning": ReasoningParser}[part]
    return PluginLoadError(
        f"{plugin.selected.described} declares the feature {part!r}, and its hook returned a {type(made).__name__}, which is no "
        f"{sort.__name__}"
    )
