"""Embeddings, labels, scores and rankings over HTTP: the shapes that clients know, the official client, refusals, and what a
model that generates answers on these routes."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from jackfield.testing.tiny_encoders import write_encoder
from tests.e2e.http.servers import DEADLINE, SIMULATED, Server, serving

TEXTS = ["the sea is calm.", "two birds fly", "the sky is blue."]
MEAN = {"pooling_mode_mean_tokens": True}
FLAGS = ("--dtype", "float32", "--check-invariants", "step")


class Pooled(Server):
    """A server that does not generate, held to the same end as others: idle, nothing held, and still answering."""

    probe: str

    def assert_alive(self) -> None:
        kv = self.state()["kv"]
        assert kv["free"] == kv["total"], "an encoder keeps no KV"
        assert self.scheduler() == (0, 0)
        body = {"input": "the sea"}
        assert self.post(self.probe, body).status_code == 200
        assert self.get("/health").status_code == 200


def up(folder: Path, probe: str, *flags: str) -> Iterator[Pooled]:
    with serving("--model-path", str(folder), *FLAGS, *flags, check=False) as server:
        server.__class__ = Pooled
        assert isinstance(server, Pooled)
        server.probe = probe
        yield server
        server.assert_alive()
        assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pooled]:
    folder = tmp_path_factory.mktemp("embedder")
    write_encoder(folder, pooling=MEAN, max_seq_length=48, matryoshka_dimensions=[8, 16])
    yield from up(folder, "/v1/embeddings", "--served-model-name", "tiny-embed", "--metrics", "prometheus")


@pytest.fixture(scope="module")
def crosser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pooled]:
    folder = tmp_path_factory.mktemp("crosser")
    write_encoder(folder, "BertForSequenceClassification", num_labels=1)
    yield from up(folder, "/v1/classify", "--served-model-name", "tiny-cross", "--max-prompts-per-request", "8")


@pytest.fixture(scope="module")
def generator() -> Iterator[Server]:
    with serving(*SIMULATED, "--max-total-tokens", "20000", "--max-request-bytes", "100000") as server:
        yield server


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


# ---- embeddings


def test_the_official_client_embeds(embedder: Pooled) -> None:
    """Its default asks for base64 and decodes it itself."""
    with openai.OpenAI(base_url=f"{embedder.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE) as client:
        answer = client.embeddings.create(model="tiny-embed", input=TEXTS)
        plain = client.embeddings.create(model="tiny-embed", input=TEXTS, encoding_format="float")
        assert [one.index for one in answer.data] == [0, 1, 2]
        for one, other in zip(answer.data, plain.data, strict=True):
            np.testing.assert_allclose(one.embedding, other.embedding, rtol=1e-5, atol=1e-6)
            assert math.isclose(float(np.linalg.norm(one.embedding)), 1, rel_tol=1e-5)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
        short = client.embeddings.create(model="tiny-embed", input=TEXTS[0], dimensions=8).data[0].embedding
        whole = np.array(plain.data[0].embedding[:8])
        np.testing.assert_allclose(short, whole / np.linalg.norm(whole), rtol=1e-5, atol=1e-6)
        with pytest.raises(openai.BadRequestError, match="gives embeddings"):
            client.chat.completions.create(model="tiny-embed", messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="another", input="the sea")


def test_texts_and_ids_in_all_forms(embedder: Pooled) -> None:
    def vectors(given: Any, **more: Any) -> list[Any]:
        answer = ok(embedder.post("/v1/embeddings", {"input": given, **more}))
        assert (answer["object"], answer["model"]) == ("list", "tiny-embed")
        return [one["embedding"] for one in answer["data"]]

    ids = ok(embedder.post("/tokenize", {"prompt": TEXTS[0]}))["tokens"]
    (text,) = vectors(TEXTS[0])
    np.testing.assert_allclose(vectors([TEXTS[0]]), [text], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vectors(ids), [text], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vectors([ids, ids]), [text, text], rtol=1e-5, atol=1e-6)
    (coded,) = vectors(TEXTS[0], encoding_format="base64")
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(coded), "<f4"), text, rtol=1e-5, atol=1e-6)
    assert len(vectors("the sea " * 60, truncate_prompt_tokens=-1)[0]) == 32


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": 5}, "input"),
        ({"input": [1, -1]}, "input"),
        ({"input": [5, 10_000]}, "input"),
        ({"input": ["a", 5]}, "input"),
        ({"input": "the sea " * 60}, "input"),
        ({"input": [5] * 49}, "input"),
        ({"input": "a", "dimensions": 9}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "truncate_prompt_tokens": 49}, "truncate_prompt_tokens"),
        ({"input": "a", "priority": "high"}, "priority"),
        ({}, "input"),
    ],
)
def test_what_is_wrong_is_refused_by_name(embedder: Pooled, body: dict[str, Any], param: str) -> None:
    error = refused(embedder.post("/v1/embeddings", body))
    assert error["param"] is not None
    assert error["param"].startswith(param), error


def test_the_native_shape(embedder: Pooled) -> None:
    one = ok(embedder.post("/encode", {"text": TEXTS[0], "rid": "mine"}))
    assert one["meta_info"]["id"] == "mine"
    assert one["meta_info"]["finish_reason"] == {"type": "stop", "matched": None}
    several = ok(embedder.post("/encode", {"text": TEXTS, "dimensions": 16}))
    assert [len(answer["embedding"]) for answer in several] == [16, 16, 16]
    assert refused(embedder.post("/encode", {"text": "a", "input_ids": [5]}))["param"] == "text"
    assert refused(embedder.post("/encode", {"text": "a", "image_data": "x"}))["param"] == "image_data"
    assert "max_new_tokens" in refused(embedder.post("/encode", {"text": "a", "max_new_tokens": 5}))["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"text": "a"}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/classify", {"text": "a"}),
        ("/v1/classify", {"input": "a"}),
    ],
)
def test_other_routes_say_what_the_model_does(embedder: Pooled, path: str, body: dict[str, Any]) -> None:
    error = refused(embedder.post(path, body))
    assert "the model that is served gives embeddings (/v1/embeddings and /encode)" in error["message"]
    assert error["code"] == "not_supported"


def test_what_is_told_of_the_model(embedder: Pooled, generator: Server) -> None:
    info = embedder.get("/model_info").json()
    assert (info["is_generation"], info["task"], info["embedding_size"]) == (False, "embedding", 32)
    assert info["context_length"] == 48
    assert embedder.get("/v1/models").json()["data"][0]["is_generation"] is False
    assert generator.get("/model_info").json()["task"] == "generation"


def test_metrics_and_why_know_of_them(embedder: Pooled) -> None:
    ok(embedder.post("/encode", {"text": TEXTS[0], "rid": "watched"}))
    metrics = embedder.get("/metrics").text
    (finished,) = [line for line in metrics.splitlines() if line.startswith("jackfield_num_finished_requests_total")]
    assert 'reason="stop"' in finished
    story = embedder.get("/requests/watched/why").json()
    assert story["requests"][0]["state"] == "finished"


def test_a_ranking_by_an_embedding_model(embedder: Pooled) -> None:
    vectors = [one["embedding"] for one in ok(embedder.post("/v1/embeddings", {"input": ["the sea", *TEXTS]}))["data"]]
    wanted = [float(np.dot(vectors[0], vector)) for vector in vectors[1:]]
    answer = ok(embedder.post("/rerank", {"query": "the sea", "documents": TEXTS, "top_n": 2}))
    assert [one["index"] for one in answer["results"]] == sorted(range(3), key=lambda i: -wanted[i])[:2]
    for one in answer["results"]:
        assert math.isclose(one["relevance_score"], wanted[one["index"]], abs_tol=1e-5)


# ---- pairs and labels


def test_scores_of_pairs(crosser: Pooled) -> None:
    one = ok(crosser.post("/v1/score", {"text_1": "the sea", "text_2": TEXTS}))
    assert [entry["index"] for entry in one["data"]] == [0, 1, 2]
    assert all(0 < entry["score"] < 1 for entry in one["data"])
    each = ok(crosser.post("/v1/score", {"text_1": ["the sea"] * 3, "text_2": TEXTS}))
    assert [entry["score"] for entry in each["data"]] == pytest.approx(
        [entry["score"] for entry in one["data"]], rel=1e-4
    )
    ranked = ok(crosser.post("/v1/rerank", {"query": "the sea", "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]]}))
    found = {entry["index"]: entry["relevance_score"] for entry in ranked["results"]}
    assert [found[i] for i in range(3)] == pytest.approx([entry["score"] for entry in one["data"]], rel=1e-4)
    assert [entry["document"]["text"] for entry in ranked["results"]] == [
        TEXTS[entry["index"]] for entry in ranked["results"]
    ]
    assert list(found.values()) == sorted(found.values(), reverse=True)
    bare = ok(crosser.post("/v1/rerank", {"query": "the sea", "documents": TEXTS, "return_documents": False}))
    assert all("document" not in entry for entry in bare["results"])


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/score", {"text_1": "a"}, "text_2"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_1"),
        ("/v1/score", {"text_1": "a", "text_2": [""]}, "text_2"),
        ("/v1/score", {"text_1": "a", "text_2": ["b"] * 9}, "text_2"),
        ("/v1/score", {"query": "a", "items": ["b"], "label_token_ids": [5]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": ["a", 5]}, "documents[1]"),
        ("/v1/rerank", {"query": "a", "documents": ["b"] * 9}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
        ("/v1/rerank", {"query": "a", "documents": ["the sea " * 60]}, "documents"),
        ("/v1/embeddings", {"input": "a"}, None),
    ],
)
def test_what_is_wrong_with_pairs(crosser: Pooled, path: str, body: dict[str, Any], param: str | None) -> None:
    assert refused(crosser.post(path, body))["param"] == param


def test_labels(crosser: Pooled) -> None:
    answer = ok(crosser.post("/v1/classify", {"input": TEXTS}))
    assert [(one["index"], one["label"], one["num_classes"]) for one in answer["data"]] == [
        (i, "LABEL_0", 1) for i in range(3)
    ]
    native = ok(crosser.post("/classify", {"text": TEXTS}))
    for one, other in zip(native, answer["data"], strict=True):
        assert one["probs"] == pytest.approx(other["probs"], rel=1e-4)
        assert one["probs"][0] == pytest.approx(1 / (1 + math.exp(-one["embedding"][0])), rel=1e-4)


# ---- a model that generates


def test_labels_tokens_of_a_model_that_generates(generator: Server) -> None:
    """SGLang's score: what `token_ids_logprob` gives for the first token behind query and item."""
    labels = [5, 9, 700]
    body = {"query": "Is it blue? ", "items": ["the sea", "the sky"], "label_token_ids": labels}
    answer = ok(generator.post("/v1/score", body))
    assert (answer["object"], len(answer["scores"])) == ("scoring", 2)
    sampling = {"max_new_tokens": 1, "temperature": 0}
    for item, scores in zip(body["items"], answer["scores"], strict=True):
        told = generator.generate(
            text=f"Is it blue? {item}", sampling_params=sampling, return_logprob=True, token_ids_logprob=labels
        )
        entries = told["meta_info"]["output_token_ids_logprobs"][0]
        assert scores == pytest.approx([math.exp(entry[0]) for entry in entries], rel=1e-4)
    shares = ok(generator.post("/v1/score", {**body, "apply_softmax": True, "item_first": True}))["scores"]
    assert [sum(row) for row in shares] == pytest.approx([1, 1])
    ids = ok(generator.post("/v1/score", {"query": [5, 6], "items": [[7], [8, 9]], "label_token_ids": labels}))
    assert len(ids["scores"]) == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"query": "a", "items": ["b"]}, "label_token_ids"),
        ({"query": "a", "items": [], "label_token_ids": [5]}, "items"),
        ({"query": "a", "items": [[5]], "label_token_ids": [5]}, "items"),
        ({"query": "a", "items": ["b"], "label_token_ids": [5, 5]}, "label_token_ids"),
        ({"query": "a", "items": ["b"], "label_token_ids": [10**9]}, "label_token_ids"),
        ({"query": "a", "items": ["b"], "label_token_ids": ["x"]}, "label_token_ids"),
        ({"query": "a" * 900, "items": ["b"] * 200, "label_token_ids": [5]}, "items"),
        ({"text_1": "a", "text_2": "b"}, "text_1"),
    ],
)
def test_what_is_wrong_with_label_scores(generator: Server, body: dict[str, Any], param: str) -> None:
    assert refused(generator.post("/v1/score", body))["param"] == param


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "a"}),
        ("/encode", {"text": "a"}),
        ("/classify", {"text": "a"}),
        ("/v1/classify", {"input": "a"}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
        ("/rerank", {"query": "a", "documents": ["b"]}),
    ],
)
def test_a_model_that_generates_says_so(generator: Server, path: str, body: dict[str, Any]) -> None:
    error = refused(generator.post(path, body))
    assert "the model that is served generates text" in error["message"]
    assert error["code"] == "not_supported"
