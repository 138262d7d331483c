"""The figures of a round, from an engine whose clock is the test's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jackfield.entrypoints.bench import offline
from jackfield.entrypoints.bench.usage import Usage
from jackfield.entrypoints.bench.workloads import workload


class Engine:
    """Answers as the script says: (seconds, tokens so far) of each answer of a stream; for a batch, seconds in all."""

    vocab_size = 49152

    def __init__(self, clock: SimpleNamespace, stream: Sequence[tuple[float, int]] = (), batch: float = 0.0) -> None:
        self.clock, self.script, self.batch = clock, stream, batch
        self.asked: list[tuple[str, Any, Any]] = []

    def flush_cache(self, timeout: float = 0.0) -> None:
        self.asked.append(("flush", None, None))

    def generate(self, *, input_ids: Any, sampling_params: Any, stream: Any = False) -> Any:
        self.asked.append(("stream" if stream else "batch", input_ids, dict(sampling_params)))
        return self._stream() if stream else self._batch(input_ids, sampling_params["max_new_tokens"])

    def _stream(self) -> Iterator[dict[str, Any]]:
        for seconds, tokens in self.script:
            self.clock.now += seconds
            yield {"meta_info": {"completion_tokens": tokens, "cached_tokens": 0}}

    def _batch(self, prompts: Any, new: int) -> list[dict[str, Any]]:
        self.clock.now += self.batch
        return [
            {
                "meta_info": {
                    "completion_tokens": new,
                    "cached_tokens": number,
                    "stage_times": {"tokenize": 0.25, "queue": float(number), "prefill": 1.0, "decode": 9.0},
                }
            }
            for number in range(len(prompts))
        ]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(offline, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def test_one_request_is_streamed_and_its_first_token_told_apart(clock: SimpleNamespace) -> None:
    engine = Engine(clock, [(0.5, 1), (0.25, 2), (0.25, 4), (0.5, 6)])
    told = offline.one_round(engine, [[5] * 20], 6)
    assert (told["ttft_s"], told["wall_s"]) == (0.5, 1.5)
    assert told["decode_tokens_per_s"] == 5 / 1.0
    assert told["prefill_tokens_per_s"] == 20 / 0.5
    assert told["output_tokens_per_s"] == 6 / 1.5
    assert told["total_tokens_per_s"] == 26 / 1.5
    assert told["answers"] == 4
    sampling = {"max_new_tokens": 6, "temperature": 0, "ignore_eos": True}
    assert engine.asked == [("flush", None, None), ("stream", [5] * 20, sampling)]


def test_tokens_that_come_together_first_are_not_counted_as_decoded(clock: SimpleNamespace) -> None:
    told = offline.one_round(Engine(clock, [(0.5, 3), (1.0, 5)]), [[5]], 5)
    assert told["decode_tokens_per_s"] == 2 / 1.0


def test_all_at_once_has_no_speed_of_decoding(clock: SimpleNamespace) -> None:
    assert "decode_tokens_per_s" not in offline.one_round(Engine(clock, [(0.5, 5)]), [[5]], 5)


def test_many_are_handed_in_together(clock: SimpleNamespace) -> None:
    engine = Engine(clock, batch=4.0)
    told = offline.one_round(engine, [[1, 2], [3, 4], [5, 6]], 10)
    assert (told["wall_s"], told["output_tokens_per_s"], told["total_tokens_per_s"]) == (4.0, 30 / 4.0, 36 / 4.0)
    assert told["ttft_s"] == 2.25
    assert told["ttft_of_requests_s"]["max"] == 3.25
    assert told["cached_tokens"] == 0 + 1 + 2
    assert [what for what, _, _ in engine.asked] == ["flush", "batch"]


def test_fewer_tokens_than_asked_for_are_no_measurement(clock: SimpleNamespace) -> None:
    with pytest.raises(RuntimeError, match="5 new tokens came back where 6 were asked for"):
        offline.one_round(Engine(clock, [(0.5, 5)]), [[5]], 6)
    with pytest.raises(RuntimeError, match="no token came back"):
        offline.one_round(Engine(clock, []), [[5]], 6)


def test_a_warm_up_a_round_each_and_the_median_of_them(clock: SimpleNamespace) -> None:
    engine, told = Engine(clock, batch=1.0), []
    work = workload("batch", requests=2, prompt_tokens=4, new_tokens=3)
    kept, thrown = offline.measure(
        engine, work, 3, most_noise=None, tries=3, tell=lambda what, done, total: told.append((what, done, total))
    )
    assert [ids for what, ids, _ in engine.asked if what == "batch"] == [
        work.prompts(number) for number in (99, 0, 1, 2)
    ]
    assert ([one["round"] for one in kept], thrown) == ([0, 1, 2], [])
    assert told[-1] == ("rounds", 3, 3)
    for number, one in enumerate(kept):
        one["output_tokens_per_s"] = (5.0, 9.0, 6.0)[number]
    figure = offline.results(kept)["output_tokens_per_s"]
    assert (figure["value"], figure["min"], figure["max"], figure["spread"]) == (6.0, 5.0, 9.0, 4 / 6)
    assert figure["rounds"] == [5.0, 9.0, 6.0]
    assert "decode_tokens_per_s" not in offline.results(kept)


@pytest.mark.parametrize(
    ("noise", "kept", "thrown"),
    [
        ([0.5, 0.1, 0.0], [0.1, 0.0], [0.5]),  # the second try of the first round is calm enough
        ([0.5, 0.4, 0.6, 0.2], [0.4, 0.2], [0.5, 0.6]),  # none of three is: the calmest counts
        ([None, None], [None, None], []),  # where it is not known, nothing can be thrown away
    ],
)
def test_a_disturbed_round_is_tried_again(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, noise: list[Any], kept: list[Any], thrown: list[Any]
) -> None:
    left = [0.0, *noise]  # the warm-up's
    monkeypatch.setattr(Usage, "since", lambda self, before: {"cpu_seconds": 0.0, "other_cores": left.pop(0)})
    rounds, away = offline.measure(
        Engine(clock, batch=1.0),
        workload("batch", requests=2, prompt_tokens=4, new_tokens=3),
        2,
        most_noise=0.2,
        tries=3,
        tell=lambda *_: None,
    )
    assert ([one["other_cores"] for one in rounds], [one["other_cores"] for one in away]) == (kept, thrown)
    assert left == []
