"""What goes to the detokenizer: entries are collected and sent as one message. Knows no tables.

A message wakes another process, which takes a core from whoever computes the next step. So the ids of requests on which nobody
waits meanwhile stay here for some steps, or until there is anything else to send.
"""

from __future__ import annotations

from jackfield.ipc.channels import Sender
from jackfield.ipc.messages import BatchTokenOutput, FinishReason, RequestOpened, TokenLogprobs, TokenOutput
from jackfield.managers.scheduler.request import Request

PROMPT_TAIL = 8
"""Prompt ids that travel with `RequestOpened`: enough context for any tokenizer's decoder at the seam."""


class Outbox:
    """Keeps the order: a request is opened before its first entry. Sends when there are entries; an opening alone rides
    with the next ones.

    epoch      of the stack by whose decisions requests end now
    patience   ids of a `patient` request that may be held back; 0: none are
    """

    def __init__(self, to_detokenizer: Sender, patience: int = 0) -> None:
        self.epoch = 0
        self._patience = patience
        self._held: dict[str, TokenOutput] = {}
        self._due = False
        self._to_detokenizer = to_detokenizer
        self._opened: list[RequestOpened] = []
        self.outputs: list[TokenOutput] = []

    def open(self, request: Request) -> None:
        self._opened.append(
            RequestOpened(
                rid=request.rid,
                sampling=request.sampling,
                prompt_tail=request.prompt[-PROMPT_TAIL:].tolist(),
                stream=request.stream,
            )
        )

    def refuse(self, opened: RequestOpened, finish: FinishReason, prompt_tokens: int) -> None:
        """A request that never got in: opened and finished in one message."""
        self._opened.append(opened)
        self.outputs.append(
            TokenOutput(rid=opened.rid, finish=finish, prompt_tokens=prompt_tokens, stack_epoch=self.epoch)
        )

    def grew(self, request: Request, ids: list[int], logprobs: TokenLogprobs | None) -> None:
        """New ids of a request that goes on, and their entries if it wants any. `ids` is the outbox's from here on."""
        if not self._patience or not request.patient or logprobs is not None:
            self.outputs.append(TokenOutput(rid=request.rid, ids=ids, logprobs=logprobs))
        elif (held := self._held.get(request.rid)) is None:
            self._held[request.rid] = TokenOutput(rid=request.rid, ids=ids)
        else:
            held.ids.extend(ids)
            self._due |= len(held.ids) >= self._patience

    def finish(
        self,
        request: Request,
        ids: list[int],
        finish: FinishReason,
        cached: int,
        tier_tokens: dict[str, int],
        retractions: int,
        logprobs: TokenLogprobs | None = None,
        pooled: bytes = b"",
    ) -> None:
        """The request's last entry; its stage times are closed by now."""
        self.outputs.append(
            TokenOutput(
                rid=request.rid,
                ids=ids,
                finish=finish,
                prompt_tokens=len(request.prompt),
                cached_tokens=cached,
                tier_tokens=tier_tokens,
                retractions=retractions,
                stage_times=request.times.seconds(),
                logprobs=logprobs,
                stack_epoch=self.epoch,
                pooled=pooled,
            )
        )

    def flush(self) -> None:
        if self.outputs or self._due:
            message = BatchTokenOutput(opened=self._opened, outputs=[*self._held.values(), *self.outputs])
            self._opened, self._held, self.outputs, self._due = [], {}, [], False
            self._to_detokenizer.send(message)
