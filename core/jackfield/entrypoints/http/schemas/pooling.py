"""Requests and answers of the routes for embeddings, labels, scores and rankings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from jackfield.entrypoints.http.schemas.common import Answer, Flag, Native, NotYet, OpenAI, Size, Text


class Scheduled(OpenAI):
    """Fields that all of OpenAI's and Jina's shapes have here."""

    model: Text | None = Field(None, description="The served model's id; not given: the served model.")
    truncate_prompt_tokens: Any = Field(
        None,
        description="Extension: keep so many tokens of a longer text, -1: as many as the model takes. Not given: it is refused.",
    )
    cache_salt: Any = Field(
        None, description="Extension: a secret text; cached prefixes are shared only with requests of the same salt."
    )
    priority: Any = Field(None, description="Extension, for policies that look at it: higher is more urgent.")
    tenant: Any = Field(None, description="Extension, for policies that look at it: on whose account this runs.")
    deadline_s: Any = Field(None, description="Extension, for policies that look at it: seconds from arrival.")


class EmbeddingsBody(Scheduled):
    input: Any = Field(description="A text, token ids, or a list of either.")
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="base64: the little-endian float32 values; not given: float."
    )
    dimensions: Any = Field(None, description="Entries of each vector, for models whose vectors may be cut.")
    user: Any = Field(None, description="Accepted and without effect.")


class PooledUsage(Answer):
    prompt_tokens: int
    total_tokens: int


class Embedding(Answer):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="A text with `encoding_format` base64.")


class Embeddings(Answer):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PooledUsage


class ClassifyBody(Scheduled):
    input: Any = Field(description="A text, token ids, or a list of either.")


class Classified(Answer):
    index: int
    label: str = Field(description="The best one's name.")
    probs: list[float] = Field(description="All labels' scores.")
    num_classes: int


class Classification(Answer):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Classified]
    usage: PooledUsage


class ScoreBody(Scheduled):
    """`query`, `items` and `label_token_ids` on a model that generates; else `text_1` and `text_2`."""

    query: Any = Field(None, description="A text or token ids.")
    items: Any = Field(None, description="A text, a list of texts, or a list of id lists.")
    label_token_ids: Any = Field(None, description="The tokens whose probabilities behind query and item are wanted.")
    apply_softmax: Flag | None = Field(None, description="Probabilities among the labels alone.")
    item_first: Flag | None = Field(None, description="Item and query, in place of query and item.")
    text_1: Any = Field(None, description="A text, or a list: one for all of `text_2`, or one for each.")
    text_2: Any = Field(None, description="A text, or a list.")


class Scored(Answer):
    object: Literal["score"]
    index: int
    score: float


class Scores(Answer):
    """`scores` on a model that generates (a list of the labels' for each item), else `data`."""

    object: Literal["list", "scoring"]
    model: str
    usage: PooledUsage
    id: str | None = None
    created: int | None = None
    data: list[Scored] | None = None
    scores: list[list[float]] | None = None


class RerankBody(Scheduled):
    query: Text
    documents: list[Any] = Field(min_length=1, description='Texts, or objects {"text": ...}.')
    top_n: Size | None = Field(None, description="How many are told; not given, or 0: all.")
    return_documents: Flag | None = Field(None, description="Whether the answer repeats the texts; not given: yes.")


class RankedDocument(Answer):
    text: str


class Ranked(Answer):
    index: int = Field(description="Position in `documents`.")
    relevance_score: float
    document: RankedDocument | None = None


class Ranking(Answer):
    """Best first; of equals the one that came first."""

    id: str
    model: str
    results: list[Ranked]
    usage: PooledUsage


class EncodeBody(Native):
    """One text or a batch: exactly one of `text` and `input_ids`."""

    text: Any = Field(None, description="The text, or a list of texts.")
    input_ids: Any = Field(None, description="Token ids, or a list of such lists.")
    rid: Any = Field(None, description="The client's id of the request, unique among live ones.")
    dimensions: Any = Field(None, description="Entries of each vector, for models whose vectors may be cut.")
    truncate_prompt_tokens: Any = Field(None, description="As of /v1/embeddings.")
    cache_salt: Any = Field(None, description="As of /generate.")
    priority: Any = Field(None, description="As of /generate.")
    tenant: Any = Field(None, description="As of /generate.")
    deadline_s: Any = Field(None, description="As of /generate.")
    log_metrics: Flag | None = Field(None, description="Accepted and without effect.")
    image_data: NotYet = None
    video_data: NotYet = None
    audio_data: NotYet = None
    lora_path: NotYet = None


class LabelsBody(EncodeBody):
    """As of /encode, but without dimensions."""

    dimensions: NotYet = None


class PooledMeta(Answer):
    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    cached_tokens: int
    e2e_latency: float
    stage_times: dict[str, float]
    stack_epoch: int
    stack_hash: str


class Encoded(Answer):
    """Of a batch, a list of these."""

    embedding: list[float]
    meta_info: PooledMeta


class Labelled(Answer):
    """Of a batch, a list of these."""

    embedding: list[float] = Field(description="The labels' logits.")
    probs: list[float] = Field(description="The labels' scores.")
    label: str
    meta_info: PooledMeta
