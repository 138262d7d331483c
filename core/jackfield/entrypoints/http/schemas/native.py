"""Requests and answers of the native routes, in SGLang's shape."""

from __future__ import annotations

from typing import Any

from pydantic import Field, RootModel

from jackfield.entrypoints.http.schemas.common import Answer, Flag, Native, NotYet, Text, Unused


class GenerateBody(Native):
    """One prompt or a batch: exactly one of `text` and `input_ids`."""

    text: Any = Field(None, description="The prompt, or a list of prompts.")
    input_ids: Any = Field(None, description="Token ids of the prompt, or a list of such lists.")
    sampling_params: Any = Field(
        None, description="SGLang's sampling parameters, for all prompts or one object a prompt."
    )
    rid: Any = Field(None, description="The client's id of the request, unique among live ones.")
    stream: Flag | None = Field(None, description="Answer with server-sent events.")
    cache_salt: Any = Field(
        None,
        description="A secret text: cached prefixes are shared only with requests of the same salt. One for all prompts, or a "
        "list with one for each.",
    )
    priority: Any = Field(
        None,
        description="For policies that look at it: higher is more urgent, 0 if not given. Or a list, one a prompt.",
    )
    tenant: Any = Field(
        None, description="For policies that look at it: on whose account this runs, a text. Or a list, one a prompt."
    )
    deadline_s: Any = Field(
        None,
        description="For policies that look at it: seconds from arrival. It orders, and ends nothing. Or a list, one a prompt.",
    )
    session_params: Any = Field(
        None,
        description="Go on with a session: {id, rid, offset, replace, drop_previous_output}. For one prompt with one answer.",
    )
    return_logprob: Any = Field(
        None,
        description="Log-probabilities of the model's raw logits for each output token. This and the next three: or a list, "
        "one a prompt.",
    )
    logprob_start_len: Any = Field(
        None, description="Those of the prompt too, for the tokens after this position; -1, the default: none."
    )
    top_logprobs_num: Any = Field(None, description="How many of the likeliest tokens go with each, at most 100.")
    token_ids_logprob: Any = Field(None, description="Up to 100 token ids whose values go with each.")
    return_text_in_logprobs: Any = Field(None, description="Name tokens by text too.")
    return_prompt_token_ids: Flag | None = Field(
        None, description="Give the prompt's ids as `prompt_token_ids`; in a stream, with the last event of the answer."
    )
    extra_key: Any = Field(
        None,
        description="Cached prefixes are shared only with requests of the same extra key, as with `cache_salt`. Or a list, one a "
        "prompt.",
    )
    log_metrics: Flag | None = Field(
        None, description="false: it counts in no metric of requests, tokens and latencies."
    )
    no_logs: Flag | None = Field(
        None, description="true: the request log has neither its parameters nor its texts, whatever its level."
    )
    routing_key: Unused = None
    conversation_id: Unused = None
    custom_labels: Unused = None
    external_trace_header: Unused = None
    received_time: Unused = None
    validation_time: Unused = None
    kv_hints: Unused = None
    input_embeds: NotYet = None
    image_data: NotYet = None
    video_data: NotYet = None
    audio_data: NotYet = None
    modalities: NotYet = None
    return_hidden_states: NotYet = None
    return_routed_experts: NotYet = None
    return_entropy: NotYet = None
    session_id: NotYet = None
    lora_path: NotYet = None
    custom_logit_processor: NotYet = None
    bootstrap_host: NotYet = None
    bootstrap_port: NotYet = None
    bootstrap_room: NotYet = None
    bootstrap_pair_key: NotYet = None
    routed_dp_rank: NotYet = None
    data_parallel_rank: NotYet = None
    disagg_prefill_dp_rank: NotYet = None
    mm_hashes: NotYet = None
    routed_experts_start_len: NotYet = None
    background: NotYet = None
    require_reasoning: NotYet = None
    max_thinking_tokens: NotYet = None


Logprob = list[float | int | str | None]
"""[value, id, text]: text only if it was asked for; value null for the first token of the prompt's."""


class GenerateMeta(Answer):
    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    weight_version: str = Field(description="What the operator calls the weights (--weight-version).")
    num_retractions: int = Field(description="How often it gave its memory back and was computed again.")
    e2e_latency: float | None = Field(None, description="Seconds; with the complete answer.")
    queue_time: float | None = Field(None, description="Seconds in the waiting queue; with the complete answer.")
    response_sent_to_client_ts: float | None = Field(
        None, description="When the complete answer was handed to the connection: seconds since the epoch."
    )
    cached_tokens_details: dict[str, int] | None = Field(
        None,
        description="With the complete answer: of `cached_tokens`, how many the prefix cache had (device), and how many each KV "
        "tier had, by its name.",
    )
    stage_times: dict[str, float] | None = Field(None, description="Seconds by stage; with the complete answer.")
    stack_epoch: int | None = Field(
        None, description="Of the stack that decided the step with which it ended: 0, and one more after each swap."
    )
    stack_hash: str | None = Field(None, description="Of that stack; SHA-256, hex.")
    output_token_logprobs: list[Logprob] | None = Field(None, description="With `return_logprob`: one a token.")
    output_token_logprobs_length: int | None = None
    output_top_logprobs: list[list[Logprob]] | None = Field(None, description="With `top_logprobs_num`.")
    output_token_ids_logprobs: list[list[Logprob]] | None = Field(None, description="With `token_ids_logprob`.")
    input_token_logprobs: list[Logprob] | None = Field(
        None, description="Of the prompt from `logprob_start_len` on; the first has no value."
    )
    input_top_logprobs: list[list[Logprob] | None] | None = None
    input_token_ids_logprobs: list[list[Logprob] | None] | None = None


class GenerateAnswer(Answer):
    """Of a batch, a list of these; in a stream, one an event, and `index` says to which prompt it belongs."""

    text: str
    output_ids: list[int]
    meta_info: GenerateMeta
    prompt_token_ids: list[int] | None = Field(None, description="With `return_prompt_token_ids`.")
    index: int | None = Field(None, description="In streams of a batch: the prompt's position.")


class GenerateAnswers(RootModel[GenerateAnswer | list[GenerateAnswer]]):
    """One, or of a batch a list in the order of the prompts."""


class AbortBody(Native):
    """Exactly one of `rid` and `abort_all`."""

    rid: Text | None = Field(None, description="The client's id of a request, or the id in its answer.")
    abort_all: Flag | None = Field(None, description="End every request.")
    abort_message: Text | None = Field(None, max_length=1024, description="Told to the clients of these requests.")


class AbortAnswer(Answer):
    aborted: int = Field(description="How many open requests were asked to end.")


class OpenSessionBody(Native):
    """All of it may be left out."""

    session_id: Any = Field(None, description="The client's own id; not given: a random one.")
    max_tokens: Any = Field(None, description="Most tokens in all of its turns, at most --max-session-tokens.")
    capacity_of_str_len: Any = Field(
        None, description="SGLang's bound, in characters; here as `max_tokens`. The smaller of both counts."
    )
    timeout: Any = Field(None, description="Seconds without a turn until it is forgotten, at most --session-timeout.")
    streaming: NotYet = None


class CloseSessionBody(Native):
    session_id: Any = Field(description="From /open_session.")


class CloseSessionAnswer(Answer):
    closed: bool = Field(description="false: a turn is running, and the session goes at its end.")


class PolicyBody(Native):
    """The schedule policy that is to run from now on."""

    name: Text = Field(description="As for --schedule-policy.")
    options: dict[str, Any] | None = Field(
        None, description="All of its options; those of the start are not carried over."
    )


class PolicyAnswer(Answer):
    """The policy that runs. `stack_epoch` counts the swaps."""

    name: str
    options: dict[str, Any]
    distribution: str
    version: str
    reason: str
    stack_hash: str
    stack_epoch: int
    changed: bool | None = Field(None, description="POST: false if this policy ran already, with the same options.")


class FlushAnswer(Answer):
    success: bool
    message: str
