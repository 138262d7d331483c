"""A request that was checked and may be sent, with the state that will fill up; and the further answers to its prompt."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import msgspec

from jackfield.ipc.messages import TokenizedGenerateRequest
from jackfield.managers.fields.choices import choice_label, choice_seed
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.sessions.sessions import Resumption


@dataclass(frozen=True, kw_only=True)
class CheckedRequest:
    """resumption  for a turn of a session
    granted     most tokens of its answer
    """

    request: TokenizedGenerateRequest
    state: ReqState
    resumption: Resumption | None = None
    granted: int = 0

    def choices(self, n: int) -> list[CheckedRequest]:
        """The n answers to its prompt, each a request of its own over the same ids; the first keeps the rid."""
        return [self] if n == 1 else [self._choice(j, n) for j in range(n)]

    def _choice(self, choice: int, n: int) -> CheckedRequest:
        first = self.state
        sampling = msgspec.structs.replace(first.sampling, seed=choice_seed(first.sampling.seed, choice))
        rid = self.request.rid if choice == 0 else uuid.uuid4().hex
        state = ReqState(
            rid=rid,
            label=choice_label(first.label, choice, n),
            index=first.index + choice,
            prompt_tokens=first.prompt_tokens,
            sampling=sampling,
            stream=first.stream,
            now=first.received_at,
            choice=choice,
            call_label=first.label,
            logprobs=None if first.logprobs is None else first.logprobs.fresh(),
            token_text=first.token_text,
            wishes=first.wishes,
        )
        if choice == 0:
            state.times = first.times  # the prompt was tokenized once
        names = (state.label, first.label, *self.request.names)
        request = msgspec.structs.replace(self.request, rid=rid, sampling=sampling, names=names)
        return CheckedRequest(request=request, state=state)
