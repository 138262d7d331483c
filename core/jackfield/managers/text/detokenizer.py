"""One request on the text side: its tokens become text until a stop string, or the scheduler, ends it.

Knows decoding, stop strings, stop expressions and what of a stop token is shown. Knows no messages beyond the records of one
request, no channel and no clock; `detokenizer_manager` has those.
"""

from __future__ import annotations

from jackfield.ipc.messages import FinishReason, RequestOpened, TokenOutput
from jackfield.managers.logprobs.entries import PendingEntries
from jackfield.managers.text.stop import StopMatcher
from jackfield.managers.text.stop_regex import stop_regexes
from jackfield.managers.text.tokenizer import Tokenizer


class RequestDetokenizer:
    """Feed it the scheduler's entries with `advance`; collect with `take` when `due`.

    finish    set when the answer is complete; nothing that comes later is shown
    entries   log-probabilities of the ids that `take` gives next
    seconds   time spent on the request and not yet told; whoever measures adds to it
    """

    __slots__ = (
        "_decoder",
        "_ids",
        "_interval",
        "_keep_stop",
        "_matcher",
        "_quiet",
        "_started",
        "_stream",
        "_text",
        "entries",
        "finish",
        "seconds",
    )

    def __init__(self, opened: RequestOpened, tokenizer: Tokenizer | None) -> None:
        sampling = opened.sampling
        self.finish: FinishReason | None = None
        self.entries = PendingEntries()
        self.seconds = 0.0
        self._stream = opened.stream
        self._interval = sampling.stream_interval
        self._keep_stop = sampling.no_stop_trim
        self._matcher = StopMatcher(sampling.stop, stop_regexes(sampling.stop_regex))
        # At 0 and above, what the newest token says is shown without a look for stops.
        self._quiet = sampling.min_new_tokens
        self._decoder = (
            tokenizer.incremental_decoder(skip_special_tokens=sampling.skip_special_tokens, context=opened.prompt_tail)
            if tokenizer is not None
            else None
        )
        self._started = False
        self._text: list[str] = []
        self._ids: list[int] = []

    @property
    def pending_ids(self) -> int:
        """How many ids `take` gives next."""
        return len(self._ids)

    @property
    def due(self) -> bool:
        """There is something to tell: the end, or, for a streaming request, its first token and then every
        `stream_interval` tokens. What is not streamed is told once, whole, at the end."""
        if self.finish is not None:
            return True
        return self._stream and len(self._ids) >= (self._interval if self._started else 1)

    def advance(self, output: TokenOutput) -> None:
        """Apply one entry, token by token, so that a stop string ends the request at the token that completes it.

        A stop string or expression that completes among the tokens shown comes before the scheduler's own reason (SGLang's
        order: strings and expressions, ids, length). In what the first `min_new_tokens` tokens say none is looked for; a
        match lies behind it as a whole.
        """
        if self.finish is not None:
            return
        finish = output.finish
        ids = output.ids
        stop_token = ids[-1] if finish is not None and _stopped_at_last_id(finish, ids) else None
        for position, token in enumerate(ids):
            self._ids.append(token)
            self._quiet -= 1
            # The token that means "stop" is no part of the text, unless the client wants to see it. It is never decoded
            # and cut off again: the length of its text says nothing about what is before it.
            trimmed = stop_token is not None and position == len(ids) - 1 and not self._keep_stop
            if not trimmed and self._decoder is not None and self._stops(self._decoder.push(token)):
                return
        if finish is None or (self._decoder is not None and self._stops(self._decoder.flush())):
            return
        self._text.append(self._matcher.flush())
        self.finish = finish

    def fail(self, finish: FinishReason) -> None:
        """End it here for a reason of this side; what is held back is lost."""
        self.finish = finish

    def take(self) -> tuple[str, list[int]]:
        """The text and the ids since the last time."""
        text, ids = "".join(self._text), self._ids
        self._text, self._ids = [], []
        self._started = True
        return text, ids

    def _stops(self, text: str) -> bool:
        if self._quiet >= 0 and text:
            self._text.append(text)
            return False
        shown, matched = self._matcher.feed(text)
        if shown:
            self._text.append(shown)
        if matched is None:
            return False
        if self._keep_stop:
            self._text.append(self._matcher.matched_text)
        self.finish = FinishReason(type="stop", matched=matched)
        return True


def _stopped_at_last_id(finish: FinishReason, ids: list[int]) -> bool:
    return finish.type == "stop" and isinstance(finish.matched, int) and ids[-1:] == [finish.matched]
