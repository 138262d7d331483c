"""The conformance suite of kind `worker`: hand-made batches, and the same requests cut, batched, moved and reopened.

A worker that runs a model is held against transformers on a tiny checkpoint; any other against itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jackfield.hookspecs import LogprobSpec, WorkerOp, WorkerResult
from jackfield.stack.discovery.claims import FEATURE, claimed
from jackfield.testing.conformance.worker_features import COUNT, PROMPTS, FeatureConformance
from jackfield.testing.conformance.worker_rig import VOCAB
from jackfield.testing.tiny_models import reference_logits
from jackfield.testing.worker_driver import Advance


class WorkerConformance(FeatureConformance):
    """Needs transformers, attention, operators, model code and a loader only for a worker whose manifest needs them."""

    # --- results ---

    def test_limits(self) -> None:
        """What it offers is what it was asked for: rows, slots in whole pages, context, and no more than that."""
        for page_size in (1, 16):
            limits = self.worker(page_size=page_size, max_total_tokens=512).limits
            assert limits.page_size == page_size
            assert limits.total_slots % page_size == 0, f"{limits.total_slots} slots are no whole pages of {page_size}"
            assert 0 < limits.total_slots <= 512, f"{limits.total_slots} slots, asked for 512"
            assert limits.max_rows >= 2, "row 0 is the dummy row, and there is no other"
            assert (limits.vocab_size, limits.max_context > 0, limits.max_tokens_per_row >= 1) == (VOCAB, True, True)
            assert limits.window is None, "no window pool was offered"

    def test_results(self) -> None:
        """int32 tokens of the vocabulary, ragged in the batch's order: none for a middle chunk, one for a sampled row."""
        driver = self.driver()
        first, second = driver.open(PROMPTS[0]), driver.open(PROMPTS[1])
        for sample in (True, False):
            advances = (Advance(request=first, new=3, sample=False), Advance(request=second, new=5, sample=False))
            if sample:
                result = driver.step(advances[0], Advance(request=second))
                self._well_formed(result, [0, 1])
            else:
                self._well_formed(driver.step(Advance(request=first, new=2, sample=False)), [0])

    def _well_formed(self, result: WorkerResult, counts: list[int]) -> None:
        assert result.tokens.dtype == np.int32, f"tokens are {result.tokens.dtype}"
        assert result.starts.dtype == np.int32, f"starts are {result.starts.dtype}"
        assert np.diff(result.starts).tolist() == counts, f"starts {result.starts.tolist()}, wanted {counts} tokens"
        assert len(result.tokens) == result.starts[-1]
        assert ((result.tokens >= 0) & (result.tokens < VOCAB)).all(), f"not of the vocabulary: {result.tokens}"
        assert not result.errors, f"a row failed: {dict(result.errors)}"
        assert not result.refused, result.refused
        assert result.logprobs is None, "log-probabilities that nobody asked for"

    def test_reference(self) -> None:
        """Greedy tokens are transformers' on the same checkpoint."""
        if not self.runs_a_model():
            self.not_claimed("it needs no model, so there is nothing to be equal to")
        _, reference = self.reference()
        for prompt in PROMPTS:
            tokens = list(prompt)
            for _ in range(COUNT):
                tokens.append(int(reference_logits(reference, tokens)[-1].argmax()))
            found = self.alone(prompt)
            assert found == tokens[len(prompt) :], f"after {prompt}: {found}, transformers {tokens[len(prompt) :]}"

    # --- the same requests, otherwise ---

    def test_chunks(self) -> None:
        """A prompt in chunks gives what it gives in one piece."""
        for size in (1, 5, 16):
            driver = self.driver()
            request = driver.open(PROMPTS[1])
            while len(PROMPTS[1]) - request.computed > size:
                driver.step(Advance(request=request, new=size, sample=False))
            self.goes_on(driver, request, f"in chunks of {size}")

    def test_batches(self) -> None:
        """A request among others, some in prefill and some in decode, gives what it gives alone."""
        driver = self.driver(seed=3)
        requests = [driver.open(prompt) for prompt in PROMPTS]
        driver.step(requests[2], Advance(request=requests[0], new=4, sample=False))
        driver.step(requests[0], Advance(request=requests[3], new=11, sample=False), requests[2])
        driver.step(*requests)
        for _ in range(COUNT):
            driver.step(*(request for request in requests if len(request.output) < COUNT))
        for request, prompt in zip(requests, PROMPTS, strict=True):
            assert request.output[:COUNT] == self.alone(prompt), f"{prompt} among others"

    def test_shared_prefix(self) -> None:
        """A prefix whose slots another request has filled is read there, also after that one's row was closed."""
        driver = self.driver()
        first = driver.open(PROMPTS[3])
        driver.step(first)
        second = driver.open([*PROMPTS[3][:16], 5, 6, 7], share=first, shared_len=16)
        driver.close(first, keep_slots=True)
        self.goes_on(driver, second, "on a shared prefix")

    def test_rows_again(self) -> None:
        """A row and its slots serve the next request as if nobody had been there."""
        driver = self.driver()
        row = None
        for prompt in (PROMPTS[3], PROMPTS[0], PROMPTS[2]):
            request = driver.open(prompt, row=row)
            self.goes_on(driver, request, "in a row that was used before")
            row = request.row
            driver.close(request)

    def test_reopened(self) -> None:
        """After a retraction a row opens with its outputs in the history, and goes on as it would have."""
        samplings: tuple[dict[str, Any], ...] = ({}, {"temperature": 1.0, "seed": 77})
        driver = self.driver()
        for given in samplings:
            wanted = self.alone(PROMPTS[1], **given)
            request = driver.open([*PROMPTS[1], *wanted[:3]], outputs=3, **given)
            for _ in range(COUNT - 3):
                driver.step(request)
            assert request.output == wanted[3:], f"reopened after 3 of {wanted}: {request.output}"
            driver.close(request)

    def test_seeds(self) -> None:
        """A draw depends on seed and position alone: the same in any batch, another with another seed."""
        sampling: list[dict[str, Any]] = [
            {"temperature": 1.5, "seed": seed, "top_k": 20, "top_p": 0.95} for seed in (1, 2, 3)
        ]
        alone = [self.alone(PROMPTS[0], 12, **one) for one in sampling]
        driver = self.driver()
        requests = [driver.open(PROMPTS[0], **one) for one in sampling]
        for _ in range(12):
            driver.step(*requests)
        assert [request.output for request in requests] == alone, "the same seeds, together"
        if self.runs_a_model():
            assert len({tuple(tokens) for tokens in alone}) == 3, "three seeds gave the same twelve tokens"

    def test_relay(self) -> None:
        """A step may be launched before the one before it was read: the worker takes its own newest token."""
        driver = self.driver()
        requests = [driver.open(prompt) for prompt in PROMPTS[:2]]
        steps = [tuple(Advance(request=request) for request in requests)]
        steps += [tuple(Advance(request=request, new=1, relay=True) for request in requests) for _ in range(COUNT - 1)]
        pending = [driver.worker.sample(driver.launch(*step)) for step in steps]
        outputs = [one.result().tokens.tolist() for one in pending]
        assert all(one.ready() for one in pending), "read, and not ready"
        for i, prompt in enumerate(PROMPTS[:2]):
            found, wanted = [tokens[i] for tokens in outputs], self.alone(prompt)
            assert found == wanted, f"relayed {found}, alone {wanted}"

    def test_deterministic(self) -> None:
        """With `deterministic`, tokens and log-probabilities have the same bits alone and among others."""
        dtypes = [name for name in self.dtypes() if claimed(self.manifest().features, self.here(), name)]
        if not dtypes:
            self.not_claimed(f"features has no {FEATURE!r} for {self.here()}")
        spec = LogprobSpec(top=3) if "logprobs" in self.manifest().features else None
        for dtype in dtypes:
            how: dict[str, Any] = {"dtype": dtype, "deterministic": True}
            alone, driver = [], self.driver(**how)
            for prompt in PROMPTS:
                request = driver.open(prompt, logprobs=spec)
                alone.append([driver.step(request) for _ in range(3)])
                driver.close(request)
            driver = self.driver(seed=5, **how)
            requests = [driver.open(prompt, logprobs=spec) for prompt in PROMPTS]
            for step in range(3):
                together = driver.step(*requests)
                for i, results in enumerate(alone):
                    assert together.tokens[i] == results[step].tokens[0], f"{dtype}: another token among others"
                    ours, theirs = together.logprobs, results[step].logprobs
                    if ours is not None and theirs is not None:
                        same = ours.top_values[i].tobytes() == theirs.top_values[0].tobytes()
                        assert same, f"{dtype}: log-probabilities depend on the batch"

    # --- life ---

    def test_control(self) -> None:
        """An operation that it does not know is answered with its name, and is not an error."""
        reply = self.worker().control(WorkerOp(name="no_such_operation"))
        assert not reply.ok
        assert "no_such_operation" in reply.message

    def test_close(self) -> None:
        """close frees everything and may be called twice, also when nothing was ever launched."""
        idle, used = self.driver(), self.driver()
        used.generate(PROMPTS[0], 2)
        for driver in (idle, used):
            driver.worker.close()
            driver.worker.close()
