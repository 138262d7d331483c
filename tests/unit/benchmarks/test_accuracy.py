"""What the accuracy script computes of log-probabilities, and that cutting a prompt into steps of one token changes none."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.testing.packed import PackedShape, write_packed_gguf


def test_a_divergence_counts_all_other_tokens_as_one(scripts: SimpleNamespace) -> None:
    p, q = np.log([[0.5, 0.25], [0.6, 0.3]]), np.log([[0.25, 0.25], [0.6, 0.3]])
    first = 0.5 * math.log(0.5 / 0.25) + 0.25 * math.log(0.25 / 0.5)
    assert scripts.accuracy.divergence(p, q) == pytest.approx([first, 0.0], abs=1e-12)


def test_the_coarse_divergence_is_at_most_that_of_the_whole_distributions(scripts: SimpleNamespace) -> None:
    random = np.random.default_rng(0)
    p, q = (np.log(random.dirichlet(np.ones(50), 20)) for _ in range(2))
    whole = (np.exp(p) * (p - q)).sum(axis=1)
    coarse = scripts.accuracy.divergence(p[:, :10], q[:, :10])
    assert (coarse <= whole + 1e-9).all()
    assert (coarse > 0).all()


def test_the_greatest_difference_is_among_the_references_likeliest(scripts: SimpleNamespace) -> None:
    exact = np.log([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]])
    other = exact + np.array([[0.1, -0.2, 0.0, 5.0], [5.0, np.nan, np.nan, 0.3]])
    assert scripts.accuracy.apart(exact, other, count=2) == pytest.approx([0.2, 0.3])


def window(scripts: SimpleNamespace, *chosen: float) -> object:
    return scripts.accuracy.Window(
        np.array(chosen), np.zeros((len(chosen), 1), dtype=np.int64), np.zeros((len(chosen), 1))
    )


def test_perplexities_are_of_all_tokens_and_held_to_a_share(scripts: SimpleNamespace) -> None:
    base = [window(scripts, -1.0, -1.0), window(scripts, -2.0)]
    ours = [window(scripts, -1.0, -1.0), window(scripts, -2.03)]
    assert scripts.accuracy.perplexity(base) == pytest.approx(math.exp(4 / 3))
    figure = scripts.accuracy.within("it", ours, base, 0.02)
    assert figure.value == pytest.approx(math.exp(0.01))
    assert figure.met
    assert figure.values == pytest.approx([1.0, math.exp(0.03)])
    assert not scripts.accuracy.within("it", ours, base, 0.005).met
    assert not scripts.accuracy.within("it", base, ours, 0.005).met  # a text that got likelier is as far away


def test_ours_and_theirs_are_held_against_the_reference(scripts: SimpleNamespace) -> None:
    exact = np.log(np.full((2, 300), 1 / 300))
    ids = [5, 6, 7]
    near, far = exact + 0.001, exact + 0.01
    likeliest = np.tile(np.arange(256), (2, 1))
    ours = scripts.accuracy.Window(near[:, 0], likeliest, near[:, :256])
    figures = scripts.accuracy.against_reference([ids], [ours], [exact], [far])
    assert figures["bf16_greatest"].value == pytest.approx(0.1)
    assert figures["bf16_greatest"].met is None
    assert figures["bf16_difference"].value == pytest.approx(0.1)
    assert figures["bf16_difference"].met
    assert figures["bf16_kl"].value < 0.1
    assert figures["bf16_kl"].met
    assert figures["bf16_perplexity"].value == pytest.approx(math.exp(-0.001))
    assert figures["bf16_perplexity"].b == pytest.approx([math.exp(-0.01)])


def test_windows_are_whole_and_taken_from_each_text_in_turn(
    scripts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = SimpleNamespace(from_pretrained=lambda folder: lambda text: {"input_ids": list(map(int, text.split()))})
    # In place of the package, whose import takes seconds.
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=tokenizer))
    texts = [tmp_path / "a", tmp_path / "b"]
    texts[0].write_text("1 2 3 4 5 6 7")
    texts[1].write_text("11 12 13")
    assert scripts.accuracy.windows_of(texts, "x", 2, 9) == [[1, 2], [11, 12], [3, 4], [5, 6]]
    assert scripts.accuracy.windows_of(texts, "x", 2, 2) == [[1, 2], [11, 12]]
    with pytest.raises(SystemExit, match="no text has 8 tokens"):
        scripts.accuracy.windows_of(texts, "x", 8, 2)


def test_a_prompt_in_steps_of_one_token_has_the_same_log_probabilities(
    scripts: SimpleNamespace, tmp_path: Path
) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", "q4_1", PackedShape(layers=1))
    args = ServerArgs(model_path=str(path), device="cpu", max_total_tokens=256, skip_tokenizer_init=True)
    ids = np.random.default_rng(0).integers(2, 512, (2, 24)).tolist()
    form = {"dtype": "float32", "quantization": "none"}
    whole, stack = scripts.accuracy.of_jackfield(args, ids, **form)
    steps, _ = scripts.accuracy.of_jackfield(args, [one[:16] for one in ids], **form, **scripts.accuracy.STEPS)
    assert len(stack) == 64
    assert whole[0].values.shape == (23, scripts.accuracy.LIKELIEST)
    for one, begun in zip(steps, whole, strict=True):
        np.testing.assert_allclose(one.chosen, begun.beginning(16).chosen, atol=1e-4)
        assert (np.diff(one.values, axis=1) <= 0).all()
