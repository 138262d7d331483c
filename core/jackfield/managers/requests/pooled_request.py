"""One call for what a model gives of whole prompts, as a client sent it. Knows shapes of fields, and checks none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jackfield.managers.requests.generate_request import GenerateRequest


@dataclass(frozen=True, kw_only=True)
class PooledRequest:
    """One call of the API, single or batch; nothing in it has been checked.

    kind               "embedding" or "classification": what is wanted
    prompt             text, or a list of texts
    second             the second text of each pair, one a prompt; None: the prompts are single texts
    input_ids          ids, or a list of id lists; exactly one of prompt and input_ids
    dimensions         embedding: how many entries of the vector; None: all
    truncate           keep so many tokens of a prompt that is longer; -1: as many as the model takes; None: it is refused
    rid, call_id, cache_salt, priority, tenant, deadline_s   as in `GenerateRequest`
    """

    kind: str
    prompt: str | Sequence[str] | None = None
    second: Sequence[str] | None = None
    input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None
    dimensions: int | None = None
    truncate: int | None = None
    rid: str | Sequence[str] | None = None
    call_id: str | None = None
    cache_salt: str | Sequence[str | None] | None = field(default=None, repr=False)
    priority: int | Sequence[int | None] | None = None
    tenant: str | Sequence[str | None] | None = None
    deadline_s: float | Sequence[float | None] | None = None

    @property
    def prompts(self) -> GenerateRequest:
        """Its prompts, with the fields that it has in common with a call for text."""
        return GenerateRequest(
            prompt=self.prompt,
            input_ids=self.input_ids,
            rid=self.rid,
            call_id=self.call_id,
            cache_salt=self.cache_salt,
            priority=self.priority,
            tenant=self.tenant,
            deadline_s=self.deadline_s,
        )

    @property
    def is_batch(self) -> bool:
        """True for a list of prompts, even of one: then the answer is a list."""
        return self.prompts.is_batch


AnyRequest = GenerateRequest | PooledRequest
