"""A `Runtime` for tests of routes: it answers every chat with the events that the test wrote down, and knows what it was asked.

No model, no server, no thread. Tokens are the text's words.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from jackfield.hookspecs import (
    CallBegan,
    CallDelta,
    ChatChoice,
    ChatEvent,
    ChatRequest,
    ChatUsage,
    ChoiceEnded,
    ContentDelta,
    ModelCard,
    ReasoningDelta,
    RouteError,
    TextRequest,
    ToolCall,
)

CARD = ModelCard(
    name="scripted",
    path="/models/scripted",
    created=1_700_000_000,
    context_length=4096,
    vocab_size=1000,
    architecture="LlamaForCausalLM",
    dtype="float32",
    chat_template="{% if tools %}{{ tools }}{% endif %}{{ messages }}",
    config={"model_type": "llama"},
)

HELLO: tuple[ChatEvent, ...] = (
    ContentDelta(index=0, text="Hel"),
    ContentDelta(index=0, text="lo"),
    ChoiceEnded(index=0, reason="stop"),
)


ONE_BY_ONE: tuple[tuple[ChatEvent, ...], ...] = tuple((event,) for event in HELLO)


class ScriptedRun:
    """closed: its events were read to the end, or let go."""

    def __init__(self, batches: Sequence[Sequence[ChatEvent]], prompt_tokens: int, error: RouteError | None) -> None:
        self._batches = batches
        self._prompt_tokens = prompt_tokens
        self._error = error
        self._told = 0
        self.closed = False

    @property
    def prompt_tokens(self) -> int:
        return self._prompt_tokens

    async def events(self) -> AsyncGenerator[Sequence[ChatEvent], None]:
        try:
            for batch in self._batches:
                self._told += len(batch)
                yield batch
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True

    async def choices(self) -> Sequence[ChatChoice]:
        events: list[ChatEvent] = []
        async for batch in self.events():
            events.extend(batch)
        return [_choice(index, events) for index in sorted({event.index for event in events})]

    def usage(self) -> ChatUsage:
        return ChatUsage(prompt_tokens=self._prompt_tokens, completion_tokens=self._told, cached_tokens=1)


class ScriptedRuntime:
    """batches   the events of every answer, as they come together
    error     what ends the answer behind the last batch; refusal: what is raised before there is an answer
    asked     the requests, in order; runs: their answers
    """

    def __init__(
        self,
        batches: Sequence[Sequence[ChatEvent]] = ONE_BY_ONE,
        *,
        card: ModelCard = CARD,
        error: RouteError | None = None,
        refusal: RouteError | None = None,
    ) -> None:
        self._batches = batches
        self._card = card
        self._error = error
        self._refusal = refusal
        self.asked: list[ChatRequest | TextRequest] = []
        self.runs: list[ScriptedRun] = []

    @property
    def model(self) -> ModelCard:
        return self._card

    @property
    def version(self) -> str:
        return "0.0"

    @property
    def problem(self) -> str | None:
        return None

    def stack(self) -> Mapping[str, Any]:
        return {"hash": "0" * 64, "epoch": 0, "plugins": [], "rejected": []}

    async def chat(self, request: ChatRequest) -> ScriptedRun:
        return self._run(request, _words(str(request.messages)))

    async def complete(self, request: TextRequest) -> ScriptedRun:
        return self._run(request, _words(str(request.prompt)))

    async def count_tokens(self, request: ChatRequest) -> int:
        self._ask(request)
        return _words(str(request.messages))

    async def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(range(_words(text)))

    async def detokenize(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def _run(self, request: ChatRequest | TextRequest, prompt_tokens: int) -> ScriptedRun:
        self._ask(request)
        self.runs.append(ScriptedRun(self._batches, prompt_tokens, self._error))
        return self.runs[-1]

    def _ask(self, request: ChatRequest | TextRequest) -> None:
        self.asked.append(request)
        if self._refusal is not None:
            raise self._refusal


def _words(text: str) -> int:
    return max(1, len(text.split()))


def _choice(index: int, events: Sequence[ChatEvent]) -> ChatChoice:
    mine = [event for event in events if event.index == index]
    (ended,) = [event for event in mine if isinstance(event, ChoiceEnded)]
    calls = [event for event in mine if isinstance(event, CallBegan)]
    return ChatChoice(
        index=index,
        content="".join(event.text for event in mine if isinstance(event, ContentDelta)),
        reasoning="".join(event.text for event in mine if isinstance(event, ReasoningDelta)),
        tool_calls=tuple(
            ToolCall(
                id=call.id,
                name=call.name,
                arguments="".join(
                    event.arguments for event in mine if isinstance(event, CallDelta) and event.call == call.call
                ),
            )
            for call in calls
        ),
        reason=ended.reason,
        matched=ended.matched,
        logprobs=None,
    )
