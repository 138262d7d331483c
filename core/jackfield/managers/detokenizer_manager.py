"""The detokenizer's end of every request: batches of tokens come in, batches of text go out.

Owns one `RequestDetokenizer` a live request, from the scheduler's opening of it until both sides have ended it. Knows no
process, socket or thread: whoever drives it calls `step`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from jackfield.hookspecs import StackChanged
from jackfield.ipc.channels import Receiver, Sender
from jackfield.ipc.dispatcher import Dispatcher
from jackfield.ipc.messages import (
    BatchTextOutput,
    BatchTokenOutput,
    FinishReason,
    RequestOpened,
    StackNews,
    TextOutput,
    TokenOutput,
)
from jackfield.managers.text.detokenizer import RequestDetokenizer
from jackfield.managers.text.tokenizer import Tokenizer
from jackfield.observability.clock import Clock
from jackfield.observability.stages import RequestStage

log = logging.getLogger(__name__)


class DetokenizerManager:
    """tokenizer None (--skip-tokenizer-init): ids pass through, all text is "", and stop strings cannot match; whoever
    accepts requests refuses them.

    on_stack   called when a plugin was swapped, before any text of the new stack goes on
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        inbox: Receiver,
        outbox: Sender,
        clock: Clock,
        on_stack: Callable[[StackChanged], None] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._inbox = inbox
        self._outbox = outbox
        self._clock = clock
        self._on_stack = on_stack
        self._states: dict[str, RequestDetokenizer] = {}
        self._dispatch = Dispatcher({BatchTokenOutput: self._on_tokens, StackNews: self._on_news})
        self._warned_of_unknown = False

    def __len__(self) -> int:
        """Requests that are known here; 0 when everything has ended."""
        return len(self._states)

    def step(self) -> int:
        """Handle what waits. Returns how many messages there were; each is answered by at most one."""
        handled = 0
        while (message := self._inbox.receive()) is not None:
            self._dispatch(message)
            handled += 1
        return handled

    def _on_tokens(self, message: BatchTokenOutput) -> None:
        for opened in message.opened:
            self._open(opened)
        answers = [answer for entry in message.outputs if (answer := self._on_entry(entry)) is not None]
        if answers:
            self._outbox.send(BatchTextOutput(outputs=answers))

    def _on_news(self, message: StackNews) -> None:
        if self._on_stack is not None:
            self._on_stack(message.change)
        self._outbox.send(message)

    def _open(self, opened: RequestOpened) -> None:
        if opened.rid in self._states:
            # Going on would mix two requests' texts.
            raise RuntimeError(f"the scheduler opened request {opened.rid} twice")
        self._states[opened.rid] = RequestDetokenizer(opened, self._tokenizer)

    def _on_entry(self, entry: TokenOutput) -> TextOutput | None:
        state = self._states.get(entry.rid)
        if state is None:
            return self._on_unknown(entry)
        ended_before = state.finish is not None
        began = self._clock.now()
        self._advance(state, entry)
        state.seconds += self._clock.now() - began
        closed = entry.finish is not None
        if closed:
            del self._states[entry.rid]
        ends_now = state.finish is not None and not ended_before
        if not (closed or ends_now or (state.due and not ended_before)):
            return None
        text, ids = state.take()
        logprobs, prompt_logprobs = state.entries.take()
        ending = closed or ends_now
        seconds = {RequestStage.DETOKENIZE.value: state.seconds} if ending else {}
        if ending:
            state.seconds = 0.0
        return TextOutput(
            rid=entry.rid,
            text=text,
            ids=ids,
            finish=state.finish if ends_now else None,
            closed=closed,
            stop_scheduler=ends_now and not closed,
            prompt_tokens=entry.prompt_tokens,
            cached_tokens=entry.cached_tokens,
            tier_tokens=entry.tier_tokens,
            retractions=entry.retractions,
            stage_times={**entry.stage_times, **seconds},
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            stack_epoch=entry.stack_epoch,
            pooled=entry.pooled,
        )

    def _advance(self, state: RequestDetokenizer, entry: TokenOutput) -> None:
        before, ended = state.pending_ids, state.finish is not None
        try:
            state.advance(entry)
        except Exception:
            # One request can never end the engine: this one ends with an error that its client sees.
            log.exception("request %s: its tokens could not be turned into text", entry.rid)
            state.fail(
                FinishReason(
                    type="abort",
                    message="the tokens of this request could not be turned into text",
                    status_code=500,
                    err_type="InternalServerError",
                )
            )
        if not ended and (entry.logprobs is not None or entry.prompt_logprobs is not None):
            state.entries.add(entry, state.pending_ids - before)

    def _on_unknown(self, entry: TokenOutput) -> TextOutput | None:
        level = logging.DEBUG if self._warned_of_unknown else logging.WARNING
        self._warned_of_unknown = True
        if entry.finish is None:
            log.log(level, "tokens of request %s, which is not open here, are dropped", entry.rid)
            return None
        # A finish comes once a request, so this request was never opened: it ended before its first token. Its client
        # waits for the end all the same.
        log.log(level, "request %s ended without having been opened here", entry.rid)
        return TextOutput(
            rid=entry.rid,
            finish=entry.finish,
            closed=True,
            prompt_tokens=entry.prompt_tokens,
            cached_tokens=entry.cached_tokens,
            tier_tokens=entry.tier_tokens,
            retractions=entry.retractions,
            stage_times=entry.stage_times,
            stack_epoch=entry.stack_epoch,
        )
