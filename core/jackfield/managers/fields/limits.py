"""The ceilings that the checks of request fields ask for: a frozen part of `ServerArgs`, under the same names and with the same
defaults. Knows no field of a request."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from jackfield.config.limit_fields import LimitFields


def _limit(name: str) -> Any:
    return field(default=LimitFields.model_fields[name].default)


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """What each means stands in `config.limit_fields`. Without arguments: the defaults of a run."""

    max_request_id_length: int = _limit("max_request_id_length")
    max_prompts_per_request: int = _limit("max_prompts_per_request")
    max_choices: int = _limit("max_choices")
    max_stops: int = _limit("max_stops")
    max_stop_length: int = _limit("max_stop_length")
    max_stop_regex_length: int = _limit("max_stop_regex_length")
    max_stop_regex_match: int = _limit("max_stop_regex_match")
    max_stop_regex_work: int = _limit("max_stop_regex_work")
    max_stop_token_ids: int = _limit("max_stop_token_ids")
    max_logit_bias: int = _limit("max_logit_bias")
    max_top_logprobs: int = _limit("max_top_logprobs")
    max_token_ids_logprob: int = _limit("max_token_ids_logprob")
    max_logprob_values: int = _limit("max_logprob_values")
    max_prompt_logprob_values: int = _limit("max_prompt_logprob_values")
    max_streamed_prompt_logprob_values: int = _limit("max_streamed_prompt_logprob_values")
    max_cache_salt_length: int = _limit("max_cache_salt_length")
    max_tenant_length: int = _limit("max_tenant_length")
    max_messages: int = _limit("max_messages")
    max_tools: int = _limit("max_tools")
    max_template_chars: int = _limit("max_template_chars")
    max_template_steps: int = _limit("max_template_steps")
    max_schema_bytes: int = _limit("max_schema_bytes")
    max_schema_depth: int = _limit("max_schema_depth")

    @classmethod
    def of(cls, args: LimitFields) -> RequestLimits:
        """Those of a run."""
        return cls(**{one.name: getattr(args, one.name) for one in fields(cls)})


DEFAULT_LIMITS = RequestLimits()
