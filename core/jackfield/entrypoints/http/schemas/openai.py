"""Requests and answers of the OpenAI routes. Sampling fields are checked where all of them are: `managers.sampling_params`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from jackfield.entrypoints.http.schemas.common import Answer, Flag, NotYet, OpenAI, Size, Text


class StreamOptions(OpenAI):
    include_usage: Flag | None = Field(None, description="One more chunk at the end, with the usage and no choices.")
    continuous_usage_stats: Flag | None = Field(
        None, description="Extension, with `include_usage`: every chunk has the usage so far."
    )


class Sampling(OpenAI):
    """Fields that both OpenAI routes have."""

    model: Text | None = Field(None, description="The served model's id; not given: the served model.")
    stream: Flag | None = Field(None, description="Answer with server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="Only with `stream`.")
    temperature: Any = Field(None, description="0 is greedy.")
    top_p: Any = Field(None, description="Nucleus sampling, above 0 and at most 1.")
    stop: Any = Field(None, description="A text, or up to 32 texts, at which the answer ends.")
    seed: Any = Field(None, description="Seed of this request's draws.")
    top_k: Any = Field(None, description="Extension: sample from the k likeliest tokens.")
    min_p: Any = Field(None, description="Extension: drop tokens below this share of the likeliest one's probability.")
    stop_regex: Any = Field(
        None, description="Extension: a pattern (RE2), or up to 32, at whose match the answer ends."
    )
    stream_interval: Any = Field(None, description="Extension: tokens between two chunks of a stream.")
    stop_token_ids: Any = Field(None, description="Extension: ids at which the answer ends.")
    ignore_eos: Any = Field(None, description="Extension: do not stop at the model's end token.")
    frequency_penalty: Any = Field(
        None, description="-2 to 2: taken off a token's logit for each time that the answer holds it."
    )
    presence_penalty: Any = Field(None, description="-2 to 2: taken off a token's logit once the answer holds it.")
    repetition_penalty: Any = Field(
        None,
        description="Extension: above 0 and at most 2; divides a positive logit, and multiplies a negative one, of a "
        "token that prompt or answer hold.",
    )
    logit_bias: Any = Field(None, description="An object of token ids and what is added to their logits, -100 to 100.")
    min_tokens: Any = Field(None, description="Extension: no end token and no stop id before so many tokens.")
    logits_processors: Any = Field(
        None, description="Extension: an object of the server's logits processors and the parameters of each."
    )
    skip_special_tokens: Any = Field(None, description="Extension: leave special tokens out of the text.")
    no_stop_trim: Any = Field(None, description="Extension: keep the stop string in the text.")
    cache_salt: Any = Field(
        None, description="Extension: a secret text; cached prefixes are shared only with requests of the same salt."
    )
    priority: Any = Field(
        None, description="Extension, for policies that look at it: higher is more urgent, 0 if not given."
    )
    tenant: Any = Field(
        None, description="Extension, for policies that look at it: on whose account this runs, a text."
    )
    deadline_s: Any = Field(
        None, description="Extension, for policies that look at it: seconds from arrival. It orders, and ends nothing."
    )
    n: Any = Field(None, description="Answers to each prompt, at most 128; the choices of prompt i are i*n to i*n+n-1.")
    best_of: Any = Field(
        None,
        description="Completions: make so many answers to each prompt and return the `n` with the highest mean log-probability; "
        "not above `n` in a stream. Chat: absent, or the same as `n`.",
    )
    logprobs: Any = Field(
        None, description="Chat: true, or completions: 0 to 5 likeliest tokens; values of the model's raw logits."
    )
    regex: Any = Field(None, description="Extension: a pattern that the whole answer matches.")
    ebnf: Any = Field(None, description="Extension: a grammar (EBNF) that the answer keeps to.")
    json_schema: Any = Field(
        None, description="Extension: a JSON schema, or its text, that the answer validates against."
    )
    structural_tag: Any = Field(
        None, description="Extension: a structural tag, or its JSON text, that the answer keeps to."
    )
    grammar_after: Any = Field(
        None,
        description="Extension: token ids behind which one of these begins to hold; the answer is free until it has them.",
    )
    custom_logit_processor: NotYet = None


_NOT_SAMPLING = ("logprobs", "model", "stream", "stream_options", "cache_salt", "priority", "tenant", "deadline_s")

SAMPLING_FIELDS = tuple(name for name in Sampling.model_fields if name not in _NOT_SAMPLING)
"""Fields that go on to `managers.sampling_params` under the same name."""


class CompletionBody(Sampling):
    prompt: Any = Field(
        description="Text, texts, token ids, or lists of token ids. The text of a special token is that token here."
    )
    max_tokens: Size | None = Field(None, description="Most tokens to generate; not given: 16. 0 only with `echo`.")
    echo: Flag | None = Field(None, description="Begin with the prompt; with `logprobs`, its tokens have theirs.")
    suffix: Text | None = Field(
        None,
        description="What follows the answer, for models with fill-in-the-middle tokens (fim_prefix, fim_suffix, fim_middle).",
    )


class CachedTokens(Answer):
    cached_tokens: int


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens | None = Field(None, description="Known with the end of a stream.")


class TextLogprobs(Answer):
    """One entry a token, those of an echoed prompt first. A token that is a part of a character is "bytes:..."; of several
    ids with one text, all but the likeliest are "token_id:N"."""

    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="null for the first token of an echoed prompt.")
    top_logprobs: list[dict[str, float] | None] | None = Field(
        description="The likeliest tokens and the token itself; null with `logprobs` 0."
    )
    text_offset: list[int] = Field(description="Where the token begins, in characters; stops are not cut off yet.")


MatchedStop = Annotated[
    int | str | None,
    Field(
        description="Extension, once the choice is finished: the id, text or pattern at which it stopped, else null."
    ),
]


class CompletionChoice(Answer):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length", "abort"] | None = Field(description="null until the choice's last chunk.")
    matched_stop: MatchedStop = None


class Completion(Answer):
    """In a stream, each event has this shape; `usage` is null but in the last, and only if it was asked for."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class Model(Answer):
    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["jackfield"]
    root: str
    max_model_len: int
    is_generation: bool = Field(description="Extension: false for a model of embeddings or labels.")


class ModelList(Answer):
    object: Literal["list"]
    data: list[Model]
