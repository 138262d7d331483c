"""TorchWorker against transformers: the same logits and tokens whatever the batch looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import CORE_LAYOUTS, Launched
from jackfield.model_executor.results import TorchLaunched
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.worker_driver import Advance, DrivenRequest, WorkerDriver

MakeWorker = Callable[..., TorchWorker]
RANDOM = np.random.default_rng(5)
LONG = RANDOM.integers(0, 131, 60).tolist()
PROMPTS: list[list[int]] = [LONG[:n] for n in (1, 7, 16, 17, 40)] + [RANDOM.integers(0, 131, 23).tolist()]
SETTINGS = [(page, layout) for page in (1, 16) for layout in CORE_LAYOUTS]
everywhere = pytest.mark.parametrize(("page_size", "layout"), SETTINGS)


def driver(make: MakeWorker, checkpoint: Any, *, layout: str = "nhd-paged", **changes: Any) -> WorkerDriver:
    return WorkerDriver(make(checkpoint, stack_changes={"layout": CORE_LAYOUTS[layout]}, **changes), seed=3)


def logits_of(launched: Launched) -> torch.Tensor:
    logits = cast(TorchLaunched, launched).logits
    assert logits is not None
    return logits.clone()


def close_to(found: torch.Tensor, wanted: torch.Tensor) -> None:
    error = float((found - wanted).abs().max() / wanted.abs().max())
    assert error <= 1e-4, f"off by {error:.2e}"


def one(driven: WorkerDriver, advance: Advance) -> torch.Tensor:
    """Advance one request alone; its logits."""
    launched = driven.launch(advance)
    found = logits_of(launched)[0]
    driven.collect(launched, advance)
    return found


@everywhere
@pytest.mark.parametrize("checkpoint", ["llama", "mistral"])
def test_every_position_has_transformers_logits(
    make_worker: MakeWorker, request: pytest.FixtureRequest, checkpoint: str, page_size: int, layout: str
) -> None:
    """Token by token, in chunks of every size, and in one go."""
    reference = request.getfixturevalue(checkpoint)
    wanted = reference.logits(LONG)
    driven = driver(make_worker, reference, layout=layout, page_size=page_size)
    for chunk in (1, 7, 16, 60):
        driven_request = driven.open(LONG)
        done = 0
        while done < len(LONG):
            new = min(chunk, len(LONG) - done)
            done += new
            close_to(one(driven, Advance(request=driven_request, new=new)), wanted[done - 1])
            driven_request.tokens = list(LONG)  # what was sampled on the way is not part of the prompt
        driven.close(driven_request)


@everywhere
@pytest.mark.parametrize("checkpoint", ["llama", "mistral"])
def test_a_batch_decodes_as_each_request_alone(
    make_worker: MakeWorker, request: pytest.FixtureRequest, checkpoint: str, page_size: int, layout: str
) -> None:
    reference = request.getfixturevalue(checkpoint)
    driven = driver(make_worker, reference, layout=layout, page_size=page_size)
    requests = [driven.open(prompt) for prompt in PROMPTS]
    driven.step(*requests)
    for turn in range(11):
        driven.step(*np.random.default_rng(turn).permutation(np.array(requests, dtype=object)).tolist())
    for prompt, driven_request in zip(PROMPTS, requests, strict=True):
        assert driven_request.output == reference.greedy(prompt, 12)


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_relayed_token_needs_no_host(make_worker: MakeWorker, llama: Any, page_size: int) -> None:
    """Two steps in flight: the next forward is launched before the host has seen the last token."""
    driven = driver(make_worker, llama, page_size=page_size)
    requests = [driven.open(prompt) for prompt in PROMPTS[:4]]
    known = [Advance(request=r) for r in requests]
    pending = driven.worker.sample(driven.launch(*known))
    outputs: list[list[int]] = [[] for _ in requests]
    for _ in range(9):
        relayed = [Advance(request=r, new=1, relay=True) for r in requests]
        launched = driven.launch(*relayed)
        for i, tokens in enumerate(pending.result().tokens.tolist()):
            outputs[i].append(tokens)
        pending = driven.worker.sample(launched)
    for i, tokens in enumerate(pending.result().tokens.tolist()):
        outputs[i].append(tokens)
    assert outputs == [llama.greedy(prompt, 10) for prompt in PROMPTS[:4]]


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_prefix_is_shared_through_the_table(make_worker: MakeWorker, llama: Any, page_size: int) -> None:
    """B54, the worker's side: a cached prefix up to the last token but one gives what a cold run gives."""
    driven = driver(make_worker, llama, page_size=page_size)
    first = driven.open(LONG[:40])
    driven.step(first)
    shared = 39 // page_size * page_size
    second = driven.open(LONG[:40], share=first, shared_len=shared)
    third = driven.open([*LONG[:32], 5, 6, 7], share=first, shared_len=32)
    driven.step(first, second, third)
    driven.step(third, second)
    assert first.output == llama.greedy(LONG[:40], 2)
    assert second.output == llama.greedy(LONG[:40], 2)
    assert third.output == llama.greedy([*LONG[:32], 5, 6, 7], 2)
    driven.close(first, keep_slots=True)  # the prefix outlives the row that computed it
    driven.step(second)
    assert second.output == llama.greedy(LONG[:40], 3)


def test_a_row_may_change_hands_while_a_step_is_in_flight(make_worker: MakeWorker, llama: Any) -> None:
    """The old request's surplus token reaches neither the new request's sampling nor its relay."""
    driven = driver(make_worker, llama, max_running=2)
    old = driven.open(PROMPTS[1], row=1)
    driven.step(old)
    last = Advance(request=old)
    in_flight = driven.launch(last)
    driven.close(old)
    new = driven.open(PROMPTS[2], row=1, temperature=1.0, seed=4)
    new_advance = Advance(request=new, new=5, sample=False)
    launched = driven.launch(new_advance)
    driven.collect(in_flight, last)
    driven.collect(launched, new_advance)
    assert old.output == llama.greedy(PROMPTS[1], 2)
    with pytest.raises(ValueError, match="relays its newest token, but none was sampled"):
        driven.launch(Advance(request=new, new=1, relay=True))


def test_a_tiny_temperature_is_greedy_beside_others(make_worker: MakeWorker, llama: Any) -> None:
    """B62: no overflow, and the neighbours are what they are alone."""
    driven = driver(make_worker, llama)
    cold = [driven.open(PROMPTS[1], temperature=t, seed=1) for t in (0.0, 1e-6, 1e-4)]
    hot = driven.open(PROMPTS[5], temperature=2.0, seed=6, top_p=1e-4)
    for _ in range(6):
        driven.step(cold[0], hot, *cold[1:])
    assert {tuple(r.output) for r in cold} == {tuple(llama.greedy(PROMPTS[1], 6))}
    assert hot.output == llama.greedy(PROMPTS[5], 6)  # so small a top_p leaves the likeliest token only


def spoil(worker: TorchWorker, request: DrivenRequest, value: float) -> None:
    """Write `value` into the request's first cached value vectors, as a broken kernel would."""
    assert worker.kv is not None
    for kv in worker.kv.values():
        pages = kv.of("v", 0)
        page, offset = divmod(request.slots[0], kv.page_size)
        pages[page, offset] = value


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_row_that_is_not_finite_fails_alone(
    make_worker: MakeWorker, llama: Any, page_size: int, value: float
) -> None:
    driven = driver(make_worker, llama, page_size=page_size)
    requests = [driven.open(PROMPTS[i]) for i in (1, 2, 3)]
    driven.step(*requests)
    spoil(cast(TorchWorker, driven.worker), requests[1], value)
    for turn in range(3):
        result = driven.step(*requests)
        assert result.starts.tolist() == [0, 1, 1, 2], turn
        assert list(result.errors) == [1]
        assert "not a number" in result.errors[1]
        requests[1].tokens.append(0)  # the scheduler would end it; go on, to see that nobody else minds
    assert requests[0].output == llama.greedy(PROMPTS[1], 4)
    assert requests[2].output == llama.greedy(PROMPTS[3], 4)
    driven.close(requests[1])
    assert driven.generate(PROMPTS[5], 4) == llama.greedy(PROMPTS[5], 4)  # its slots are as good as new
    for other in [requests[0], requests[2]]:
        driven.step(other)


def test_prefill_and_decode_may_have_backends_of_their_own(make_worker: MakeWorker, llama: Any) -> None:
    seen: dict[str, list[Any]] = {"prefill": [], "decode": []}

    def maker(phase: str) -> Callable[..., Any]:
        def make(fields: Any) -> Any:
            from jackfield.hookspecs import AttentionContext
            from jackfield_attention_torch.backend import TorchAttention

            context = AttentionContext(kind="attention", name=phase, instance=phase, **fields)
            assert context.phases == (phase,)

            class Watched(TorchAttention):
                def plan(self, batch: Any) -> Any:
                    seen[phase].append(batch.mode.value)
                    return super().plan(batch)

            return Watched(context)

        return make

    attention = {phase: (phase, maker(phase)) for phase in seen}
    for declared, mode in ((frozenset({"mixed"}), "mixed"), (frozenset[str](), "extend")):
        changes = {"attention": attention, "attention_features": {"prefill": declared}}
        driven = WorkerDriver(make_worker(llama, stack_changes=changes))
        one_request, other = driven.open(PROMPTS[1]), driven.open(PROMPTS[2])
        driven.step(one_request)
        driven.step(one_request, other)
        driven.step(one_request, other)
        assert seen == {"prefill": ["extend", mode], "decode": ["decode"]}
        assert one_request.output == llama.greedy(PROMPTS[1], 3)
        assert other.output == llama.greedy(PROMPTS[2], 2)
        seen["prefill"].clear()
        seen["decode"].clear()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_as_close_to_float32_as_transformers_is(
    make_worker: MakeWorker, llama: Any, dtype: str
) -> None:
    driven = driver(make_worker, llama, page_size=16, dtype=dtype)
    exact = llama.logits(LONG)
    theirs = (llama.logits(LONG, getattr(torch, dtype)) - exact).abs().mean()
    request = driven.open(LONG)
    ours = []
    for _ in LONG:
        position = request.computed
        ours.append((one(driven, Advance(request=request, new=1)) - exact[position]).abs().mean())
        request.tokens = list(LONG)
    assert float(torch.stack(ours).mean()) <= 1.25 * float(theirs)


@pytest.mark.parametrize("checkpoint", ["llama", "mistral"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plan=st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20)), min_size=1, max_size=5), max_size=12),
    where=st.sampled_from(SETTINGS),
    seed=st.integers(0, 99),
)
def test_any_batch_composition_gives_the_same_tokens(
    make_worker: MakeWorker,
    request: pytest.FixtureRequest,
    checkpoint: str,
    plan: Sequence[Sequence[tuple[int, int]]],
    where: tuple[int, str],
    seed: int,
) -> None:
    """Each step advances some of five requests by some of their known tokens, in any order."""
    reference = request.getfixturevalue(checkpoint)
    page_size, layout = where
    worker = make_worker(reference, page_size=page_size, stack_changes={"layout": CORE_LAYOUTS[layout]})
    driven = WorkerDriver(worker, seed=seed)
    requests = [driven.open(prompt) for prompt in PROMPTS[:5]]
    for step in plan:
        advances = []
        for index, most in dict(step).items():
            known = len(requests[index].tokens) - requests[index].computed
            new = min(known, most)
            advances.append(Advance(request=requests[index], new=new, sample=new == known))
        driven.step(*advances)
    driven.step(*requests)
    for prompt, driven_request in zip(PROMPTS[:5], requests, strict=True):
        assert driven_request.output
        assert driven_request.output == reference.greedy(prompt, len(driven_request.output))
    worker.close()
