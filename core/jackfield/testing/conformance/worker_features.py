"""The checks of what a request may ask a worker for beyond plain sampling, and of the copies that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import EMBEDDING, KVMover, LogprobSpec, Pooling, TokenMasks, WorkerResult
from jackfield.testing.conformance.worker_rig import VOCAB, WorkerRig
from jackfield.testing.tiny_models import TINY, reference_logits
from jackfield.testing.worker_driver import Advance, DrivenRequest, WorkerDriver

PROMPTS = [[int(i) for i in np.random.default_rng(seed).integers(3, VOCAB, n)] for seed, n in enumerate((9, 17, 4, 30))]
COUNT = 6
LOGPROB_ERROR = 2e-4


class FeatureConformance(WorkerRig):
    """Each check runs if the manifest claims the feature; `WorkerConformance` has the others."""

    def alone(self, prompt: Sequence[int], count: int = COUNT, **sampling: Any) -> list[int]:
        """What a fresh worker answers to one request."""
        found: list[int] = self.driver().generate(prompt, count, **sampling)
        return found

    def goes_on(self, driver: WorkerDriver, request: DrivenRequest, what: str, **sampling: Any) -> None:
        """Decode the request to its end: it must answer what it answers alone."""
        while len(request.output) < COUNT:
            driver.step(request)
        prompt = request.tokens[: request.prompt_len]
        wanted = self.alone(prompt, **sampling)
        assert request.output == wanted, f"{what}: {request.output}, alone {wanted}"

    def test_logprobs(self) -> None:
        """Entries of sampled tokens: the token's own value, the likeliest ones falling, and the ids that were asked for."""
        self.needs_feature("logprobs")
        ids = np.array([5, 96, 5], dtype=np.int32)
        driver = self.driver()
        wants, plain = driver.open(PROMPTS[0], logprobs=LogprobSpec(top=4, ids=ids)), driver.open(PROMPTS[1])
        for _ in range(3):
            before = list(wants.tokens)
            found = driver.step(plain, wants).logprobs
            assert found is not None, "no log-probabilities"
            assert found.starts.tolist() == [0, 0, 1], f"one row of two wants an entry, starts are {found.starts}"
            top = found.top_values[0, :4]
            assert (np.diff(top) <= 0).all(), f"the likeliest must fall: {top}"
            assert (top <= 0).all(), f"above 0: {top}"
            assert np.exp(top.astype(np.float64)).sum() <= 1 + 1e-5, f"more than 1 together: {top}"
            assert (wants.tokens[-1], found.chosen[0]) == (found.top_ids[0, 0], top[0]), "greedy takes the likeliest"
            values = found.ids_values[found.ids_starts[0] : found.ids_starts[1]]
            assert len(values) == 3, f"three ids, {len(values)} values"
            assert values[0] == values[2]
            if self.runs_a_model():
                exact = torch.log_softmax(reference_logits(self.reference()[1], before)[-1], dim=-1)
                assert np.allclose(values, exact[ids.tolist()], atol=LOGPROB_ERROR), f"{values}, {exact[ids.tolist()]}"
                assert np.allclose(top, exact.topk(4).values, atol=LOGPROB_ERROR), f"{top}, {exact.topk(4).values}"

    def test_prompt_logprobs(self) -> None:
        """Entries of the prompt's tokens, over chunks as in one piece."""
        self.needs_feature("logprobs", "prompt_logprobs")
        prompt, values = PROMPTS[1], []
        for size in (len(prompt), 5):
            driver = self.driver()
            request = driver.open(prompt, logprobs=LogprobSpec(top=1, prompt_start=3, prompt_end=len(prompt)))
            chosen: list[float] = []
            while request.computed < len(prompt):
                left = len(prompt) - request.computed
                found = driver.step(Advance(request=request, new=min(size, left), sample=left <= size)).logprobs
                if found is not None:
                    chosen += found.chosen[: int(found.prompt[0])].tolist()
            values.append(chosen)
        assert len(values[0]) == len(prompt) - 3, f"positions 3 to {len(prompt) - 1} have {len(values[0])} entries"
        assert np.allclose(values[0], values[1], atol=LOGPROB_ERROR), "chunks change the entries"
        if self.runs_a_model():
            exact = torch.log_softmax(reference_logits(self.reference()[1], prompt), dim=-1)
            wanted = [float(exact[p - 1, prompt[p]]) for p in range(3, len(prompt))]
            assert np.allclose(values[0], wanted, atol=LOGPROB_ERROR), f"{values[0]}, transformers {wanted}"

    def test_penalties(self) -> None:
        """A frequency penalty beyond all logits lets no output come twice; one of 0 changes nothing."""
        self.needs_feature("penalties")
        found = self.alone(PROMPTS[0], 20, frequency_penalty=1000.0)
        assert len(set(found)) == 20, f"with a frequency penalty of 1000: {found}"
        off: dict[str, Any] = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
        assert self.alone(PROMPTS[0], **off) == self.alone(PROMPTS[0])

    def test_logit_bias(self) -> None:
        """A bias is added to the logits of its ids, of that row alone."""
        self.needs_feature("logit_bias")
        driver = self.driver()
        bias: dict[str, Any] = {
            "bias_ids": np.array([42], dtype=np.int32),
            "bias_values": np.array([1e4], dtype=np.float32),
        }
        biased, plain = driver.open(PROMPTS[0], **bias), driver.open(PROMPTS[0])
        for _ in range(3):
            driver.step(biased, plain)
        assert biased.output == [42] * 3, f"a bias of 10000 on token 42: {biased.output}"
        assert plain.output == self.alone(PROMPTS[0], 3), "the neighbour has the bias too"

    def test_min_new_tokens(self) -> None:
        """No end token is drawn before so many outputs, counted from the first one, also after a retraction."""
        self.needs_feature("min_new_tokens")
        usual = self.alone(PROMPTS[0])
        end: dict[str, Any] = {"end_ids": np.array(sorted(set(usual)), dtype=np.int32), "min_new_tokens": 4}
        found = self.alone(PROMPTS[0], 4, **end)
        assert not set(found) & set(usual), f"end tokens {sorted(set(usual))}, at least 4 outputs: {found}"
        again = [*PROMPTS[0], *found[:2]]
        (usual_next,) = self.alone(again, 1)
        driver, ids = self.driver(), np.array([usual_next], dtype=np.int32)
        request = driver.open(again, outputs=2, end_ids=ids, min_new_tokens=3)
        driver.step(request)
        assert request.output != [usual_next], (
            f"an end token as output 3 of at least 3, after a retraction: {usual_next}"
        )

    def test_token_masks(self) -> None:
        """A row under a mask gets one of the tokens that it allows, the likeliest of them if greedy; its neighbours get their
        own, and log-probabilities are those of the free choice."""
        self.needs_feature("token_masks")
        words = -(-VOCAB // 32)
        free = self.alone(PROMPTS[0], 1)
        for allowed in ([VOCAB - 1], [3, 40, 64, VOCAB - 1], [id for id in range(VOCAB) if id != free[0]]):
            driver = self.driver()
            wants = LogprobSpec(top=2) if "logprobs" in self.manifest().features else None
            other, bound, third = (
                driver.open(PROMPTS[1]),
                driver.open(PROMPTS[0], logprobs=wants),
                driver.open(PROMPTS[2]),
            )
            advances = [Advance(request=one) for one in (other, bound, third)]
            open_bits = np.zeros(words * 32, dtype=np.bool_)
            open_bits[allowed] = True
            masks = TokenMasks(
                rows=np.array([bound.row], dtype=np.int32),
                bits=np.packbits(open_bits, bitorder="little").view(np.uint32)[None],
            )
            result = driver.collect(driver.launch(*advances), *advances, masks=masks)
            assert bound.output[0] in allowed, f"{bound.output[0]} is not among {allowed}"
            if self.runs_a_model():
                logits = reference_logits(self.reference()[1], PROMPTS[0])[-1]
                best = max(allowed, key=lambda id: float(logits[id]))
                assert bound.output == [best], f"the likeliest of {allowed} is {best}, not {bound.output[0]}"
            if result.logprobs is not None and self.runs_a_model():
                top = result.logprobs.top_ids[0, 0]
                assert top == free[0], f"the likeliest token is {free[0]} whatever the mask, not {top}"
            for prompt, request in ((PROMPTS[1], other), (PROMPTS[2], third)):
                self.goes_on(driver, request, "beside a row under a mask")
                assert request.output == self.alone(prompt)

    def test_pooling(self) -> None:
        """In a run that pools, each prompt gets its values in the step that ends it: finite, of length 1 if so asked, the same in
        chunks and beside others, and no tokens come."""
        self.needs_feature("pooling")
        pooling = Pooling(kind=EMBEDDING, width=TINY["hidden_size"], whole=False, normalize=True)
        driver = self.driver(pooling=pooling)
        whole, cut = driver.open(PROMPTS[1]), driver.open(PROMPTS[3])
        first = [Advance(request=whole, sample=False), Advance(request=cut, new=9, sample=False)]
        result = self._pools(driver, first, [True, False])
        assert result.tokens.size == 0, f"tokens came in a run that pools: {result.tokens}"
        assert set(result.pooled) == {0}, (
            f"the prompt of row 0 has ended, and values came for rows {set(result.pooled)}"
        )
        found = [result.pooled[0], self._pools(driver, [Advance(request=cut, sample=False)], [True]).pooled[0]]
        for values, prompt in zip(found, (PROMPTS[1], PROMPTS[3]), strict=True):
            assert values.dtype == np.float32, f"pooled values are {values.dtype}, not float32"
            assert values.shape == (pooling.width,), f"{values.shape} values, not {pooling.width}"
            assert np.isclose(np.linalg.norm(values), 1, atol=1e-3), "the vector's length is not 1"
            alone = self.driver(pooling=pooling)
            again = self._pools(alone, [Advance(request=alone.open(prompt), sample=False)], [True]).pooled[0]
            assert np.allclose(values, again, atol=LOGPROB_ERROR), "neighbours or chunks change the values"
            if self.runs_a_model():
                with torch.inference_mode():
                    state = self.reference()[1].model(torch.tensor([prompt])).last_hidden_state[0, -1]
                wanted = torch.nn.functional.normalize(state, dim=0).numpy()
                assert np.allclose(values, wanted, atol=LOGPROB_ERROR), f"{values[:4]}, transformers {wanted[:4]}"

    def _pools(self, driver: WorkerDriver, advances: Sequence[Advance], pool: list[bool]) -> WorkerResult:
        return driver.worker.sample(
            driver.worker.launch(driver.batch(advances, pool=np.array(pool, dtype=np.bool_))), None
        ).result()

    def test_kv_move(self) -> None:
        """KV that was read comes back under other slots: a row that looks there goes on as before."""
        if "kv_move" not in self.manifest().features:
            assert self.worker().mover() is None, "it has a mover that features does not claim"
            self.not_claimed("features has no 'kv_move'")
        driver = self.driver()
        mover = driver.worker.mover()
        assert mover is not None, "features claims 'kv_move', and mover() gives none"
        first = driver.open(PROMPTS[3])
        driver.step(first)
        shared = np.array(first.slots[:16], dtype=np.int32)
        data = _read(mover, shared)
        assert data.shape == (16, mover.bytes_per_slot), f"{data.shape}, {mover.bytes_per_slot} bytes a slot"
        assert np.array_equal(_read(mover, shared[::-1].copy()), data[::-1]), "a read is not in the order of its slots"
        elsewhere = replace(first, slots=driver.free_slots(16)[:16])
        written = mover.write(np.array(elsewhere.slots, dtype=np.int32), data)
        while not any(moved.ticket == written and not moved.error for moved in mover.poll()):
            mover.wait(None)
        back = _read(mover, np.array(elsewhere.slots, dtype=np.int32))
        assert np.array_equal(back, data), "what was written is not what is read there"
        driver.close(first)
        driver.generate(PROMPTS[1], 2)  # in the slots that were left
        second = driver.open([*PROMPTS[3][:16], 5, 6, 7], share=elsewhere, shared_len=16)
        self.goes_on(driver, second, "on KV that was moved")


def _read(mover: KVMover, slots: NDArray[np.int32]) -> NDArray[np.uint8]:
    """A read, waited for."""
    ticket = mover.read(slots)
    while True:
        for moved in mover.poll():
            if moved.ticket == ticket:
                assert not moved.error, moved.error
                assert moved.data is not None, "a read without data"
                return moved.data
        mover.wait(None)
