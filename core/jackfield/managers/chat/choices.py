"""The events of one choice joined to the whole of it."""

from __future__ import annotations

from collections.abc import Iterable

from jackfield.hookspecs.chat import (
    CallBegan,
    CallDelta,
    ChatChoice,
    ChatEvent,
    ChoiceEnded,
    ContentDelta,
    ReasoningDelta,
    TokenEntry,
    TokensScored,
    ToolCall,
)


def joined(index: int, events: Iterable[ChatEvent], *, scored: bool = False) -> ChatChoice:
    """The choice that complete events make up. scored: log-probabilities were asked for, if none came too.

    Raises ValueError for events without an end, and for more of a call that never began.
    """
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[tuple[CallBegan, list[str]]] = []
    entries: list[TokenEntry] = []
    end: ChoiceEnded | None = None
    for event in events:
        match event:
            case ContentDelta():
                content.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
            case CallBegan():
                calls.append((event, []))
            case CallDelta():
                if not calls:
                    raise ValueError("arguments came before a call")
                calls[event.call][1].append(event.arguments)
            case TokensScored():
                entries.extend(event.entries)
            case ChoiceEnded():
                end = event
    if end is None:
        raise ValueError("the choice has not ended")
    return ChatChoice(
        index=index,
        content="".join(content),
        reasoning="".join(reasoning),
        tool_calls=tuple(ToolCall(id=began.id, name=began.name, arguments="".join(parts)) for began, parts in calls),
        reason=end.reason,
        matched=end.matched,
        logprobs=tuple(entries) if scored else None,
    )
