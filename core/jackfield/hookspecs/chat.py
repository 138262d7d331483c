"""A chat as the route of any protocol asks for it, and the events of its answer.

Knows no protocol: messages, tools and formats have OpenAI's shape because that is what chat templates read; nothing else here
is of one API. Which text of a model is reasoning or a call is the parsers' to say (`hookspecs.parser`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """One question. Nothing in it has been checked: whoever takes it refuses it by the field's name.

    messages            OpenAI's: role, content (text, text parts or None), tool_calls, tool_call_id, name, reasoning_content
    tools               OpenAI's: {"type": "function", "function": {name, description, parameters, strict}}
    tool_choice         "auto", "none", "required" or {"type": "function", "function": {"name": ...}}; None: auto if there are
                        tools
    parallel_tool_calls False: at most one call an answer
    response_format     OpenAI's {"type": "text" | "json_object" | "json_schema", ...}, or None
    sampling            under the runtime's names: max_new_tokens, temperature, top_p, top_k, stop, stop_token_ids, n, regex,
                        ebnf, json_schema, structural_tag, ...; without max_new_tokens as many tokens as fit
    stream              answers are read as they grow (`ChatRun.events`), not at the end
    reasoning           switch the model's reasoning on or off where its template can; None: the template's default
    reasoning_effort    a word for templates that read one; None: not said
    separate_reasoning  False: reasoning stays in the content as the model wrote it, tags and all
    stream_reasoning    False: the reasoning comes in one piece once it is over
    continue_final_message   the last message is the beginning of the answer
    template_kwargs     further variables of the chat template, among those that the operator allows
    logprobs            None: not wanted; else how many of the likeliest tokens go with each
    cache_salt, priority, tenant, deadline_s   as everywhere: see `docs/scheduling.md`
    names               the runtime's name of a field -> the client's, for messages of errors
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    reasoning: bool | None = None
    reasoning_effort: str | None = None
    separate_reasoning: bool = True
    stream_reasoning: bool = True
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    logprobs: int | None = None
    cache_salt: str | None = field(default=None, repr=False)
    priority: int | None = None
    tenant: str | None = None
    deadline_s: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TextRequest:
    """A plain prompt, which goes on without a template. The other fields as in `ChatRequest`.

    prompt   text, in which the text of a special token is that token, or ids
    """

    prompt: str | Sequence[int]
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    logprobs: int | None = None
    cache_salt: str | None = field(default=None, repr=False)
    priority: int | None = None
    tenant: str | None = None
    deadline_s: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenEntry:
    """One token of an answer with its log-probability, of the model's raw logits.

    token   what it stands for alone; "\\ufffd" where it is a part of a character. data: its bytes
    top     the likeliest tokens, the likeliest first; their `top` is empty
    """

    token: str
    logprob: float
    data: bytes
    top: tuple[TokenEntry, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ContentDelta:
    """More text of choice `index`."""

    index: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningDelta:
    """More of the reasoning of choice `index`, without its tags."""

    index: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallBegan:
    """A tool call begins. call: its number in the choice, from 0; id: made here, or the model's own; name: a tool's."""

    index: int
    call: int
    id: str
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallDelta:
    """More of the JSON text of a call's arguments."""

    index: int
    call: int
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokensScored:
    """Entries of the tokens that came, text held back or not; only if log-probabilities were asked for. Every token that
    usage counts has one, whatever its text became."""

    index: int
    entries: tuple[TokenEntry, ...]


EndReason = Literal["stop", "length", "tool_calls", "abort"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceEnded:
    """The last event of a choice.

    reason    "tool_calls": it ended of itself and holds a call; "length": cut off, with whatever was produced; "abort": an
              operator ended it
    matched   the id, text or pattern at which it stopped, else None
    """

    index: int
    reason: EndReason
    matched: int | str | None = None


ChatEvent = ContentDelta | ReasoningDelta | CallBegan | CallDelta | TokensScored | ChoiceEnded


@dataclass(frozen=True, kw_only=True)
class ChatUsage:
    """Tokens. A prompt counts once, however many choices it has.

    cached_tokens      of the prompt, found in the prefix cache
    reasoning_tokens   of the completion, up to the end of the reasoning
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """arguments: JSON text; of a call that was cut off, what was produced of it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ChatChoice:
    """A complete answer: what its events join to, byte for byte. logprobs: None if they were not asked for."""

    index: int
    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    reason: EndReason
    matched: int | str | None
    logprobs: tuple[TokenEntry, ...] | None


class ChatRun(Protocol):
    """A question under way, checked and handed over. It ends when the task that reads it is cancelled.

    Read it once, through `events` or through `choices`.
    """

    @property
    def prompt_tokens(self) -> int: ...

    def events(self) -> AsyncGenerator[Sequence[ChatEvent], None]:
        """What came, as it comes; a batch without events says that tokens came. Await the first before an answer's head goes
        out, so that a refusal is a status and not an event; close it (`contextlib.aclosing`) if you do not read to the end.
        Raises RouteError for a request that failed."""
        ...

    async def choices(self) -> Sequence[ChatChoice]:
        """All choices, complete, in their order. Raises RouteError for a request that failed."""
        ...

    def usage(self) -> ChatUsage:
        """So far; final once all choices have ended."""
        ...
