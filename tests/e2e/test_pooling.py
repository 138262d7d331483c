"""Embeddings, labels and scores of pairs through the whole runtime: equal to transformers', whatever runs beside them, and
nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from jackfield import Engine
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.calls import raise_unless_complete
from jackfield.managers.errors import RequestError
from jackfield.testing.tiny_encoders import hidden_states, label_logits, write_encoder

TEXTS = ["the sea is calm.", "two birds fly", "?", "the sky is blue, the sea is green. " * 2]
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


class Served:
    """An engine on a tiny encoder, and transformers' model of the same files."""

    def __init__(self, folder: Path, architecture: str, args: dict[str, Any], **entries: Any) -> None:
        self.reference = write_encoder(folder, architecture, **entries)
        library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        library.no_truncation()
        library.no_padding()
        self.library = library
        self.engine = Engine(
            model_path=str(folder), check_invariants="step", topology="inline", **{"dtype": "float32", **args}
        )

    def mean(self, text: str) -> np.ndarray[Any, Any]:
        states = hidden_states(self.reference, self.library.encode(text).ids).mean(dim=0)
        return torch.nn.functional.normalize(states, dim=0).numpy()

    def logits(self, text: str, second: str | None = None) -> np.ndarray[Any, Any]:
        encoded = self.library.encode(text, second)
        return label_logits(self.reference, encoded.ids, encoded.type_ids).numpy()

    def assert_at_rest(self) -> None:
        info = self.engine.get_server_info()
        assert (info["scheduler"]["running"], info["scheduler"]["waiting"]) == (0, 0)
        assert info["kv"]["free"] == info["kv"]["total"], "an encoder keeps no KV"
        assert not self.engine._runtime.tokenizer_manager.rid_to_state


@pytest.fixture(scope="module", params=["normal", "overlap"])
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("embedder")
    served = Served(folder, "BertModel", {"event_loop": request.param}, pooling=MEAN, max_seq_length=48)
    with served.engine:
        yield served


@pytest.fixture(scope="module")
def crosser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("crosser"), "BertForSequenceClassification", {}, num_labels=1)
    with served.engine:
        yield served


@pytest.fixture(scope="module")
def labeller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    names = {0: "calm", 1: "loud", 2: "blue"}
    served = Served(
        tmp_path_factory.mktemp("labeller"), "RobertaForSequenceClassification", {"page_size": 4}, id2label=names
    )
    with served.engine:
        yield served


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-4, atol=1e-5)


def test_embeddings_equal_transformers_alone_and_together(embedder: Served) -> None:
    together = embedder.engine.encode(TEXTS)
    for text, answer in zip(TEXTS, together, strict=True):
        close(answer["embedding"], embedder.mean(text))
        close(embedder.engine.encode(text)["embedding"], answer["embedding"])
        assert answer["meta_info"]["prompt_tokens"] == len(embedder.library.encode(text).ids)
        assert answer["meta_info"]["cached_tokens"] == 0
    embedder.assert_at_rest()


def test_twins_share_a_step_and_nothing_is_cached(embedder: Served) -> None:
    """Two equal prompts do not wait for each other: neither will find anything of the other."""
    before = embedder.engine.get_server_info()["scheduler"]["steps"]
    found = embedder.engine.encode([TEXTS[0]] * 5)
    assert embedder.engine.get_server_info()["scheduler"]["steps"] == before + 1
    for answer in found:
        close(answer["embedding"], embedder.mean(TEXTS[0]))
    embedder.assert_at_rest()


def test_ids_and_more_prompts_than_run_at_once(embedder: Served) -> None:
    random = np.random.default_rng(0)
    prompts = [random.integers(4, 60, size=int(n)).tolist() for n in random.integers(1, 48, size=300)]
    for ids, answer in zip(prompts, embedder.engine.encode(input_ids=prompts), strict=True):
        states = hidden_states(embedder.reference, ids).mean(dim=0)
        close(answer["embedding"], torch.nn.functional.normalize(states, dim=0))
    embedder.assert_at_rest()


def test_too_long_is_refused_or_cut_as_asked(embedder: Served) -> None:
    """The context is what the text model was made for (max_seq_length), not its 64 positions."""
    text = "the sea " * 40
    with pytest.raises(RequestError, match="82 tokens, but the model's context length is 48") as refused:
        embedder.engine.encode(text)
    assert (refused.value.status_code, refused.value.code) == (400, "context_length_exceeded")
    ids = embedder.library.encode(text).ids
    for truncate, kept in ((-1, 48), (10, 10)):
        answer = embedder.engine.encode(text, truncate_prompt_tokens=truncate)
        assert answer["meta_info"]["prompt_tokens"] == kept
        states = hidden_states(embedder.reference, [*ids[: kept - 1], ids[-1]]).mean(dim=0)
        close(answer["embedding"], torch.nn.functional.normalize(states, dim=0))
    wrong_ones: list[Any] = [0, 2, 49, True, "x", -2]
    for given in wrong_ones:
        with pytest.raises(RequestError) as wrong:
            embedder.engine.encode(text, truncate_prompt_tokens=given)
        assert wrong.value.param == "truncate_prompt_tokens"
    embedder.assert_at_rest()


def test_what_an_embedding_model_does_not_do_is_told(embedder: Served, crosser: Served) -> None:
    with pytest.raises(RequestError, match=r"gives embeddings .*none that generates text"):
        embedder.engine.generate("the sea")
    with pytest.raises(RequestError, match="none that gives scores of labels"):
        embedder.engine.classify("the sea")
    with pytest.raises(RequestError, match="none that gives embeddings"):
        crosser.engine.encode("the sea")
    with pytest.raises(RequestError, match="32 entries, and its files do not say that they may be cut") as refused:
        embedder.engine.encode("the sea", dimensions=8)
    assert refused.value.param == "dimensions"
    assert len(embedder.engine.encode("the sea", dimensions=32)["embedding"]) == 32
    with pytest.raises(RequestError, match="label_token_ids"):
        embedder.engine.score("the sea", TEXTS, [5, 6])


def test_aborted_requests_leave_nothing(embedder: Served) -> None:
    from jackfield.managers.requests.pooled_request import PooledRequest

    call = embedder.engine._mover.submit(PooledRequest(kind="embedding", prompt=TEXTS * 3))
    call.end()
    assert call.closed
    call = embedder.engine._mover.submit(PooledRequest(kind="embedding", prompt=TEXTS))
    assert embedder.engine.abort(abort_all=True, message="stopped by hand") == len(TEXTS)
    while not call.closed:
        call.wait()
    for state in call.states:  # of a text there is what came; of a vector nothing
        with pytest.raises(RequestError, match="stopped by hand"):
            raise_unless_complete(state)
    embedder.assert_at_rest()


def test_deterministic_vectors_have_the_same_bits_in_every_batch(tmp_path: Path) -> None:
    write_encoder(tmp_path, pooling=MEAN)
    args: dict[str, Any] = {"topology": "inline", "check_invariants": "step", "page_size": 4}
    with Engine(model_path=str(tmp_path), enable_deterministic_inference=True, **args) as engine:
        together = [one["embedding"] for one in engine.encode(TEXTS * 2)]
        assert together == [engine.encode(text)["embedding"] for text in TEXTS * 2]


def test_scores_of_pairs_are_the_cosine_of_an_embedding_models_vectors(embedder: Served) -> None:
    wanted = [float(embedder.mean("the sea") @ embedder.mean(text)) for text in TEXTS]
    close(embedder.engine.score("the sea", TEXTS), wanted)
    ranked = embedder.engine.rerank("the sea", TEXTS, 2)
    assert [one["index"] for one in ranked] == np.argsort(-np.array(wanted), kind="stable")[:2].tolist()
    assert [one["document"] for one in ranked] == [TEXTS[one["index"]] for one in ranked]


def test_a_cross_encoder_scores_pairs_with_their_token_types(crosser: Served) -> None:
    wanted = [1 / (1 + np.exp(-crosser.logits("two birds", text)[0])) for text in TEXTS]
    close(crosser.engine.score("two birds", TEXTS), wanted)
    flat = label_logits(crosser.reference, crosser.library.encode("two birds", TEXTS[0]).ids).numpy()
    assert not np.allclose(flat, crosser.logits("two birds", TEXTS[0]), atol=1e-3), "token types count in this model"
    ranked = crosser.engine.rerank("two birds", TEXTS)
    assert [one["relevance_score"] for one in ranked] == sorted(
        (one["relevance_score"] for one in ranked), reverse=True
    )
    crosser.assert_at_rest()


def test_a_long_pair_is_cut_at_the_longer_text(crosser: Served) -> None:
    long, short = "the sea " * 40, "birds"
    with pytest.raises(RequestError, match="context length is 64"):
        crosser.engine.score(short, [long])
    (found,) = crosser.engine.score(short, [long], truncate_prompt_tokens=20)
    library = crosser.library
    first, second = library.encode(short, add_special_tokens=False), library.encode(long, add_special_tokens=False)
    second.truncate(20 - 3 - len(first))
    pair = library.post_process(first, second)
    assert len(pair.ids) == 20
    close(found, torch.sigmoid(label_logits(crosser.reference, pair.ids, pair.type_ids))[0])


def test_labels_with_their_names_and_scores(labeller: Served) -> None:
    for text, answer in zip(TEXTS, labeller.engine.classify(TEXTS), strict=True):
        wanted = labeller.logits(text)
        close(answer["embedding"], wanted)
        close(answer["probs"], torch.softmax(torch.tensor(wanted), dim=0))
        assert answer["label"] == ("calm", "loud", "blue")[int(wanted.argmax())]
    with pytest.raises(RequestError, match="gives 3 labels"):
        labeller.engine.score("the sea", TEXTS)
    labeller.assert_at_rest()


def test_why_and_metrics_know_of_them(embedder: Served) -> None:
    answer = embedder.engine.encode("the sea", rid="one-vector")
    assert answer["meta_info"]["id"] == "one-vector"
    (life,) = embedder.engine.why("one-vector")["requests"]
    assert life["state"] == "finished"


def test_a_prompt_is_never_cut(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    with pytest.raises(ConfigurationError, match=r"--chunked-prefill-size 16: a model that sees prompts whole"):
        Engine(model_path=str(tmp_path), chunked_prefill_size=16)
    with pytest.raises(ConfigurationError, match="--is-embedding: this worker runs no model"):
        Engine(model_path=str(tmp_path), worker="simulated", is_embedding=True)


# ---- decoders


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A tiny Llama with the encoders' tokenizer, whose last token's state is the embedding."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("decoder")
    write_encoder(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=70,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    reference = LlamaForCausalLM(config).eval()
    reference.save_pretrained(folder)
    return folder, reference


def test_a_decoder_embeds_with_chunks_and_its_prefix_cache(decoder: tuple[Path, Any]) -> None:
    folder, reference = decoder
    args = {"chunked_prefill_size": 8, "max_prefill_tokens": 16, "dtype": "float32", "check_invariants": "step"}
    with Engine(model_path=str(folder), is_embedding=True, topology="inline", max_total_tokens=1024, **args) as engine:
        prompts = [list(range(5, 45)), [*range(5, 30), 50], [7], list(range(5, 45))]
        for _ in range(2):
            for ids, answer in zip(prompts, engine.encode(input_ids=prompts), strict=True):
                with torch.inference_mode():
                    state = reference.model(torch.tensor([ids])).last_hidden_state[0, -1]
                close(answer["embedding"], torch.nn.functional.normalize(state, dim=0))
        assert engine.encode(input_ids=prompts[0])["meta_info"]["cached_tokens"] == 39
        info = engine.get_server_info()["kv"]
        assert info["free"] + info["evictable"] == info["total"]
        with pytest.raises(RequestError, match="none that generates text"):
            engine.generate(input_ids=[5])


def test_a_decoders_files_make_it_an_embedding_model(decoder: tuple[Path, Any], tmp_path: Path) -> None:
    import json
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(decoder[0], folder)

    def modules(mode: str, *kinds: str) -> None:
        listed = [{"path": "1_Pooling" if kind == "Pooling" else "", "type": f"x.{kind}"} for kind in kinds]
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({mode: True}))

    modules("pooling_mode_lasttoken", "Transformer", "Pooling")
    with Engine(model_path=str(folder), dtype="float32", topology="inline", max_total_tokens=256) as engine:
        with torch.inference_mode():
            state = decoder[1].model(torch.tensor([[5, 6, 7]])).last_hidden_state[0, -1]
        close(engine.encode(input_ids=[5, 6, 7])["embedding"], state)  # no Normalize: as it is
    modules("pooling_mode_mean_tokens", "Transformer", "Pooling")
    with pytest.raises(ConfigurationError, match="pooling_mode_mean_tokens; of a model that generates, the last token"):
        Engine(model_path=str(folder))
    modules("pooling_mode_lasttoken", "Transformer", "Pooling", "Dense")
    with pytest.raises(ConfigurationError, match=r"the modules Dense \(modules.json\) are not served"):
        Engine(model_path=str(folder))


def test_scores_of_label_tokens_by_a_model_that_generates(decoder: tuple[Path, Any]) -> None:
    folder, reference = decoder
    with Engine(model_path=str(folder), dtype="float32", topology="inline", max_total_tokens=256) as engine:
        query, items, labels = [5, 6, 7], [[8, 9], [10]], [11, 12, 40]
        for item, scores in zip(items, engine.score(query, items, labels), strict=True):
            with torch.inference_mode():
                wanted = reference(torch.tensor([[*query, *item]])).logits[0, -1].softmax(dim=0)[labels]
            close(scores, wanted)
        for scores in engine.score(query, items, labels, apply_softmax=True):
            close(sum(scores), 1)
        with pytest.raises(RequestError, match="none that gives scores of labels"):
            engine.rerank("a", ["b"])
