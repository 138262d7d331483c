"""The fields of `ServerArgs` that say what one request, or one client, may cost. Each is checked before what it guards is
allocated, for requests over HTTP and of `Engine` alike where both can bring them. docs/security.md lists them all; a test holds
that table and this one together, and another sends each of them one too much.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, Strict

from jackfield.config.arg_types import NotNegative, Positive, Text, several
from jackfield.config.fields import Option

LIMITS = "Limits of a request"


class LimitFields(BaseModel):
    """In the order in which a request meets them."""

    max_concurrent_requests: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1024, description="Most generation requests in the server at once; more are refused with 503."
    )
    max_header_bytes: Annotated[Positive, Option(LIMITS, "BYTES")] = Field(
        default=64 * 2**10, description="Most bytes in a request's head; more are refused with 400."
    )
    max_query_fields: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=100, description="Most fields in the query of a request's address."
    )
    max_request_bytes: Annotated[Positive, Option(LIMITS, "BYTES")] = Field(
        default=8 * 2**20, description="Longest body of a request; a longer one is refused with 413."
    )
    receive_timeout: Annotated[Positive, Option(LIMITS, "SECONDS")] = Field(
        default=60,
        description="Seconds in which the head of a request must be there, else the connection is closed; the same again for "
        "its body, else it is refused with 408.",
    )
    max_json_depth: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=64, description="Deepest nesting of lists and objects in a body."
    )
    max_json_values: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1 << 20,
        description="Most values in the lists and objects of a body together, token ids among them: small ones take far more "
        "memory than their text.",
    )
    max_request_id_length: Annotated[Annotated[int, Strict(), Field(ge=64)], Option(LIMITS, "CHARS")] = Field(
        default=128,
        description="Longest rid, session_id and X-Request-Id, in characters; at least 64, for the server's own ids.",
    )
    max_prompts_per_request: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1024,
        description="Most prompts in one request, and most answers of one with n above 1: prompts times n. An Engine has no such "
        "limit unless it is set.",
    )
    max_tokenize_length: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=2**20,
        description="Most characters of all texts of a /tokenize, /parse_function_call or /separate_reasoning request, and most "
        "ids of a /detokenize request.",
    )
    max_choices: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=128, description="Most answers to one prompt: the highest n and best_of."
    )
    max_stops: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=32, description="Most texts in stop, and most patterns in stop_regex."
    )
    max_stop_length: Annotated[Positive, Option(LIMITS, "CHARS")] = Field(
        default=1024, description="Longest text in stop, in characters; so much text a stream may hold back."
    )
    max_stop_regex_length: Annotated[Positive, Option(LIMITS, "CHARS")] = Field(
        default=256, description="Longest pattern in stop_regex, in characters."
    )
    max_stop_regex_match: Annotated[Positive, Option(LIMITS, "CHARS")] = Field(
        default=512,
        description="Most characters that a pattern in stop_regex may match; so much text a stream may hold back.",
    )
    max_stop_regex_work: Annotated[Positive, Option(LIMITS, "STEPS")] = Field(
        default=2**21,
        description="Most steps of matching that the patterns of one request may take for a token: characters of each one's "
        "longest match times the length of its program. The default is a few milliseconds.",
    )
    max_stop_token_ids: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1024, description="Most ids in stop_token_ids."
    )
    max_logit_bias: Annotated[Positive, Option(LIMITS, "N")] = Field(default=512, description="Most ids in logit_bias.")
    max_top_logprobs: Annotated[NotNegative, Option(LIMITS, "N")] = Field(
        default=100,
        description="Most likeliest tokens with each token (top_logprobs_num, top_logprobs, logprobs of completions). OpenAI's "
        "routes take 20 and 5 at most, as OpenAI does.",
    )
    max_token_ids_logprob: Annotated[NotNegative, Option(LIMITS, "N")] = Field(
        default=100, description="Most ids in token_ids_logprob."
    )
    max_logprob_values: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1 << 22,
        description="Most log-probabilities that one prompt may get: tokens with an entry times what each entry holds.",
    )
    max_prompt_logprob_values: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1 << 20,
        description="Most of them for the tokens of prompts, all answers of a request together: they are computed at once.",
    )
    max_streamed_prompt_logprob_values: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1 << 18, description="The same for a request that streams, whose events may each repeat them."
    )
    max_cache_salt_length: Annotated[Positive, Option(LIMITS, "CHARS")] = Field(
        default=256, description="Longest cache_salt and extra_key, in characters."
    )
    max_tenant_length: Annotated[Positive, Option(LIMITS, "CHARS")] = Field(
        default=256, description="Longest tenant, in characters."
    )
    max_messages: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=4096, description="Most messages in one chat request."
    )
    max_tools: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=128, description="Most tools in one chat request."
    )
    chat_template_kwargs: Annotated[tuple[Text, ...], BeforeValidator(several), Option(LIMITS, "NAME")] = Field(
        default=("enable_thinking", "thinking", "reasoning_effort"),
        description="Variables of the chat template that a request may set.",
    )
    max_chat_template_kwargs_bytes: Annotated[Positive, Option(LIMITS, "BYTES")] = Field(
        default=4096, description="Most bytes of a request's chat_template_kwargs."
    )
    max_template_chars: Annotated[Positive, Option(LIMITS, "CHARS")] = Field(
        default=16 * 2**20, description="Most characters that the chat template may make of a request."
    )
    max_template_steps: Annotated[Positive, Option(LIMITS, "STEPS")] = Field(
        default=1_000_000,
        description="Most steps that the loops of the chat template may take for a request; the default is about a second.",
    )
    max_schema_bytes: Annotated[Positive, Option(LIMITS, "BYTES")] = Field(
        default=256 * 2**10,
        description="Most bytes of what constrains an answer (json_schema, response_format, regex, ebnf, structural_tag), and of "
        "the tools of a request together.",
    )
    max_schema_depth: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=32, description="Deepest nesting of lists and objects in these."
    )
    max_sessions: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=1024, description="Most sessions that are open at once; more are refused with 503."
    )
    max_session_tokens: Annotated[Positive, Option(LIMITS, "TOKENS")] = Field(
        default=131072,
        description="Most tokens in all turns of one session; a turn that does not fit is refused with 400.",
    )
    max_session_turns: Annotated[Positive, Option(LIMITS, "N")] = Field(
        default=4096, description="Most turns in one session: a turn of few tokens takes more memory than they do."
    )
    session_timeout: Annotated[Positive, Option(LIMITS, "SECONDS")] = Field(
        default=3600, description="A session without a turn for so long is forgotten."
    )
