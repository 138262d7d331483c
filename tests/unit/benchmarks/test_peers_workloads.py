"""Every engine is asked for the same: the prompts' rule, of which peers have a copy, and what a speed counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jackfield.entrypoints.bench import workloads as own

NAMES = ["decode", "prefill", "batch", "prefix", "first"]


def test_the_first_ids_are_those_of_the_rule(scripts: SimpleNamespace) -> None:
    state = (7 * 2654435761 + 12345) % 2**31
    expected = []
    for _ in range(3):
        state = (state * 1103515245 + 12345) % 2**31
        expected.append(1000 + state // 256 % 44_000)
    assert scripts.workloads.token_ids(3, 7) == expected


@pytest.mark.parametrize("test", NAMES)
def test_prompts_are_those_of_jackfield_bench(scripts: SimpleNamespace, test: str) -> None:
    ours, theirs = own.WORKLOADS[test], scripts.workloads.WORKLOADS[test]
    assert (ours.requests, ours.prompt_tokens, ours.new_tokens) == (theirs.requests, theirs.prompt, theirs.new)
    for repetition in (0, 2, scripts.measuring.WARM_UP):
        assert scripts.workloads.prompts(test, repetition) == ours.prompts(repetition, vocab_size=49_152)


@pytest.mark.parametrize("test", NAMES)
def test_requests_share_what_they_should_and_repetitions_nothing(scripts: SimpleNamespace, test: str) -> None:
    work = scripts.workloads.WORKLOADS[test]
    first, second = scripts.workloads.prompts(test, 0), scripts.workloads.prompts(test, 1)
    assert {len(prompt) for prompt in first} == {work.prompt}
    assert len({tuple(prompt[: work.shared]) for prompt in first}) == 1
    beginnings = {tuple(prompt[: work.shared + 4]) for prompt in first}
    assert len(beginnings) == work.requests
    assert all(a[:4] != b[:4] for a, b in zip(first, second, strict=True))


def test_a_speed_counts_what_its_workload_says(scripts: SimpleNamespace) -> None:
    speed, times = scripts.measuring.speed, scripts.measuring.Times
    assert speed("decode", times(first=1.0, last=2.27)) == pytest.approx(100.0)
    # An engine whose first answer brought three tokens: what came later is divided by the time after it.
    assert speed("decode", times(first=1.0, last=2.0, between=125)) == pytest.approx(125.0)
    assert speed("prefill", times(first=0.5, last=0.7)) == pytest.approx(2048.0)
    assert speed("prefill", times(last=0.5)) == pytest.approx(2048.0)
    assert speed("batch", times(first=1.0, last=16.0)) == pytest.approx(32 * 128 / 16)
    assert speed("prefix", times(last=4.0)) == pytest.approx(32 * 64 / 4)
    with pytest.raises(SystemExit, match="does not say when the first token came"):
        speed("decode", times(last=2.0))


def test_an_adapter_warms_up_and_tells_the_median(scripts: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int, int]] = []
    lasts = iter((9.0, 8.0, 2.0, 4.0))

    def run(prompts: list[list[int]], new: int) -> object:
        seen.append((len(prompts), len(prompts[0]), new))
        return scripts.measuring.Times(last=next(lasts))

    given = scripts.measuring.parser(None).parse_args(["--test", "batch", "--repetitions", "3"])
    scripts.measuring.measure(given, run, adapter="some", version="1")
    out = capsys.readouterr().out
    assert seen == [(8, 256, 8), *[(32, 256, 128)] * 3]
    assert out.startswith(scripts.measuring.MARK)
    assert f'"value": {32 * 128 / 4.0}' in out


def test_jackfields_document_becomes_an_adapters_line(scripts: SimpleNamespace) -> None:
    told = {
        "workload": {"figure": "decode_tokens_per_s"},
        "results": {"decode_tokens_per_s": {"rounds": [70.0, 90.0, 80.0]}},
        "rounds": [{"other_cores": 0.1}, {"other_cores": None}, {"other_cores": 0.3}],
        "peak_rss_mib": {"self": 500.0, "living_children": [20.0]},
        "stack": {"hash": "abc"},
        "versions": {"jackfield": "0.1.0"},
    }
    line = scripts.jackfield_offline.line(told, "decode", 2, others=1.5)
    assert (line["value"], line["other_cores"], line["peak_rss_mib"]) == (80.0, 0.3, 520)
    assert next(iter(line)) == "adapter"
    for one in told["rounds"]:
        del one["other_cores"]
    assert scripts.jackfield_offline.line(told, "decode", 2, others=1.5)["other_cores"] == 1.5
