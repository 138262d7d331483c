"""One call of the API as a client sent it. Knows shapes of fields, and checks none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jackfield.managers.fields.choices import asks_for_several


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """One call of the API, single or batch, as a client sent it; nothing in it has been checked.

    prompt             text, or a list of texts
    input_ids          ids, or a list of id lists; exactly one of prompt and input_ids
    sampling_params    a mapping, or one a prompt; `n` above 1 makes n answers of each prompt
    rid                the client's own id, or one a prompt; with n above 1 the answers have it with their number
    call_id            a further id by which people know the call: X-Request-Id
    cache_salt, extra_key   see `cache_salt`, or one a prompt
    priority, tenant, deadline_s   see `scheduling_fields`, or one a prompt
    session_params     a mapping, see `session_params`; for one prompt with one answer
    return_prompt_token_ids   give the prompt's ids with the complete answer
    log_metrics        False: it counts in no metric of the main process
    return_logprob .. return_text_in_logprobs   see `fields.logprobs`, or one a prompt (but the last)
    """

    prompt: str | Sequence[str] | None = None
    input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None
    sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    stream: bool = False
    rid: str | Sequence[str] | None = None
    call_id: str | None = None
    cache_salt: str | Sequence[str | None] | None = field(default=None, repr=False)
    extra_key: str | Sequence[str | None] | None = field(default=None, repr=False)
    priority: int | Sequence[int | None] | None = None
    tenant: str | Sequence[str | None] | None = None
    deadline_s: float | Sequence[float | None] | None = None
    session_params: Mapping[str, Any] | None = None
    return_logprob: bool | Sequence[bool | None] | None = None
    logprob_start_len: int | Sequence[int | None] | None = None
    top_logprobs_num: int | Sequence[int | None] | None = None
    token_ids_logprob: Sequence[int] | Sequence[Sequence[int] | None] | None = None
    return_text_in_logprobs: bool | None = None
    return_prompt_token_ids: bool | None = None
    log_metrics: bool | None = None

    @property
    def is_batch(self) -> bool:
        """True for a list of prompts, even of one, and for several answers to one: then the answer is a list."""
        if asks_for_several(self.sampling_params):
            return True
        if self.prompt is not None:
            return not isinstance(self.prompt, str)
        given = self.input_ids
        return isinstance(given, Sequence) and bool(given) and isinstance(given[0], Sequence)
