"""What came of a call's requests, as the events of its choices; and the usage so far.

Two steps, as the first one happens while nobody else may write the states, and should be short: `take` copies what is new,
`events` makes events of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jackfield.hookspecs.chat import ChatChoice, ChatEvent, ChatUsage, EndReason, TokenEntry, TokensScored
from jackfield.ipc.messages import FinishReason
from jackfield.managers.chat.choice_reader import ChoiceReader
from jackfield.managers.chat.choices import joined
from jackfield.managers.chat.pipeline import Reading
from jackfield.managers.chat.reasoning_tokens import ReasoningTokens
from jackfield.managers.logprobs.entries import Entry
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.requests.untold import untold
from jackfield.managers.text.tokenizer import Tokenizer


@dataclass(slots=True)
class News:
    """New text and ids of one choice, the entries that came with them, and its end."""

    index: int
    text: str
    ids: Sequence[int]
    entries: Sequence[Entry]
    cached_tokens: int
    finish: FinishReason | None


@dataclass(slots=True)
class _Choice:
    """ids: those that came since the last news, with text or without. tokens, cached_tokens: as they were told."""

    reader: ChoiceReader
    reasoning: ReasoningTokens | None
    ids: list[int] = field(default_factory=list)
    tokens: int = 0
    cached_tokens: int = 0


@dataclass
class Answers:
    """Of one call. tokenizer: names tokens; None if there is none, and then nothing may ask for names."""

    reading: Reading
    states: Sequence[ReqState]
    tokenizer: Tokenizer | None
    _choices: list[_Choice] = field(init=False)

    def __post_init__(self) -> None:
        self._choices = [_Choice(self.reading.reader(state.index), self._counter(state)) for state in self.states]

    def _counter(self, state: ReqState) -> ReasoningTokens | None:
        end = self.reading.reasoning_end
        if end is None or self.tokenizer is None:
            return None
        skip = state.sampling.skip_special_tokens
        return ReasoningTokens(end, self.tokenizer.incremental_decoder(skip_special_tokens=skip))

    def take(self, states: Sequence[ReqState]) -> list[News]:
        """For `Service.news`. Raises RequestError for a request that failed."""
        found = []
        for state, text, ids, over in untold(states):
            self._choices[state.index].ids += ids
            if text or over:
                found.append(self._news(state, text, over))
        return found

    def _news(self, state: ReqState, text: str, over: bool) -> News:
        choice, log = self._choices[state.index], state.logprobs
        ids, choice.ids = choice.ids, []
        return News(
            index=state.index,
            text=text,
            ids=ids,
            entries=() if log is None else log.outputs(state.new_entries()),
            cached_tokens=state.cached_tokens,
            finish=state.finish if over else None,
        )

    def events(self, news: Sequence[News]) -> list[ChatEvent]:
        """In the order in which it came; a choice's entries go before the text that they came with."""
        return [event for one in news for event in self._events(one)]

    def _events(self, news: News) -> list[ChatEvent]:
        choice = self._choices[news.index]
        choice.tokens += len(news.ids)
        choice.cached_tokens = news.cached_tokens
        if choice.reasoning is not None:
            choice.reasoning.push(news.ids)
        found: list[ChatEvent] = []
        if news.entries:
            found.append(TokensScored(index=news.index, entries=tuple(self._entry(entry) for entry in news.entries)))
        found += choice.reader.feed(news.text)
        if news.finish is not None:
            matched = news.finish.matched if news.finish.type == "stop" else None
            found += choice.reader.finish(end_reason(news.finish), matched)
        return found

    def choice(self, state: ReqState) -> ChatChoice:
        """The whole of a choice that has ended; for `Service.answers`."""
        # Deltas and not the text, so that the same state can say its entries and ids once.
        text, self._choices[state.index].ids = state.delta()
        return joined(state.index, self._events(self._news(state, text, True)), scored=self.reading.scored)

    def usage(self) -> ChatUsage:
        firsts = {state.index for state in self.states if state.choice == 0}
        return ChatUsage(
            prompt_tokens=sum(state.prompt_tokens for state in self.states if state.choice == 0),
            completion_tokens=sum(choice.tokens for choice in self._choices),
            cached_tokens=sum(choice.cached_tokens for i, choice in enumerate(self._choices) if i in firsts),
            reasoning_tokens=sum(
                choice.reasoning.count
                for choice in self._choices
                if choice.reasoning is not None and choice.reader.reasoned
            ),
        )

    def _entry(self, entry: Entry) -> TokenEntry:
        top = tuple(self._named(value, token) for value, token in entry.top or ())
        return self._named(entry.value, entry.token, top)

    def _named(self, value: float | None, token: int, top: tuple[TokenEntry, ...] = ()) -> TokenEntry:
        assert self.tokenizer is not None
        assert value is not None, "an output token has a value"
        data = self.tokenizer.token_bytes(token)
        return TokenEntry(token=data.decode("utf-8", "replace"), logprob=value, data=data, top=top)


def end_reason(finish: FinishReason) -> EndReason:
    """The end as a choice tells it. An operator's abort is one: no other word is true."""
    match finish.type:
        case "stop" | "length" | "abort" as word:
            return word
    raise ValueError(f"a finished request cannot end with {finish.type!r}")
