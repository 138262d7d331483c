"""The parsers of a replica, as the main process holds them."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.hookspecs import ReasoningParser, ToolCallParser


@dataclass(frozen=True, kw_only=True)
class Parsers:
    """None: the run has no parser of this sort."""

    tool_calls: ToolCallParser | None = None
    reasoning: ReasoningParser | None = None

    @property
    def keeps_special_tokens(self) -> bool:
        """Whether one of them needs the marks of special tokens in the text."""
        return any(one is not None and one.keeps_special_tokens for one in (self.tool_calls, self.reasoning))
