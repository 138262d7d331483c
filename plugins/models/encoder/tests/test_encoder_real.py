"""The real all-MiniLM-L6-v2, as its wheel has it, against transformers on the same files, through the whole runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jackfield import Engine
from jackfield.hub.locate import locate_model

pytestmark = [pytest.mark.model, pytest.mark.slow]

TEXT = (Path(__file__).parents[4] / "LICENSE").read_text()
TEXTS = [*(paragraph.strip() for paragraph in TEXT.split("\n\n")[:24] if paragraph.strip()), "Hello!", "ß 😀 日本", "?"]


@pytest.fixture(scope="module")
def folder() -> Path:
    return locate_model("all-MiniLM-L6-v2").path


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(model_path="all-MiniLM-L6-v2", dtype="float32", check_invariants="step", topology="inline") as engine:
        yield engine


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    rows = []
    with torch.inference_mode():
        for text in TEXTS:
            given = tokenizer(text, return_tensors="pt", truncation=True, max_length=256, padding=False)
            states = model(**given).last_hidden_state[0]
            rows.append(torch.nn.functional.normalize(states.mean(dim=0), dim=0).numpy())
    return np.stack(rows)


def test_vectors_alone_and_together(engine: Engine, expected: np.ndarray[Any, Any]) -> None:
    together = [one["embedding"] for one in engine.encode(TEXTS, truncate_prompt_tokens=-1)]
    np.testing.assert_allclose(together, expected, atol=1e-5)
    alone = [engine.encode(text, truncate_prompt_tokens=-1)["embedding"] for text in TEXTS[-3:]]
    np.testing.assert_allclose(alone, expected[-3:], atol=1e-5)


def test_it_means_something(engine: Engine) -> None:
    documents = ["A cat sits on the mat.", "Stocks fell sharply on Monday.", "The feline rests on a rug."]
    ranked = engine.rerank("Where is the kitten?", documents)
    assert [one["index"] for one in ranked][-1] == 1
    close, far = engine.score(documents[0], [documents[2], documents[1]])
    assert close > 0.4 > far
