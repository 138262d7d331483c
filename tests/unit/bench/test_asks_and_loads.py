from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.asks import Ask, Length, made, read
from jackfield.entrypoints.bench.loads import Load
from jackfield.entrypoints.bench.token_ids import HIGH

FOUR = Length(4, 4)


def test_lengths() -> None:
    assert (Length.read("7"), Length.read("3:9")) == (Length(7, 7), Length(3, 9))
    assert (str(Length(7, 7)), str(Length(3, 9))) == ("7", "3:9")
    for text in ("0", "9:3", "x", "", "3:", "-1:3"):
        with pytest.raises(ValueError):
            Length.read(text)


def test_prompts_are_the_same_for_the_same_seed_and_round_only() -> None:
    asks = made(20, 0, Length(6, 30), Length(2, 9), 5, 3, HIGH)
    assert asks == made(20, 0, Length(6, 30), Length(2, 9), 5, 3, HIGH)
    lengths = {len(ask.prompt) for ask in asks}
    assert min(lengths) >= 6
    assert max(lengths) <= 30
    assert len(lengths) > 5
    assert {tuple(ask.prompt[:5]) for ask in asks} == {tuple(asks[0].prompt[:5])}
    others = [made(1, number, FOUR, FOUR, 0, seed, HIGH)[0].prompt for seed in (0, 1) for number in (0, 1, 2)]
    assert len({tuple(ids) for ids in others}) == 6  # type: ignore[arg-type]


def test_a_prefix_longer_than_a_prompt_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="10 is more than the 4 tokens of the shortest prompt"):
        made(1, 0, Length(4, 20), FOUR, 10, 0, HIGH)


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "asks.jsonl"
    messages = [{"role": "user", "content": "hi"}]
    lines = [
        {"arrival_s": 2.5, "prompt": "b", "new_tokens": 3},
        {"arrival_s": 1, "prompt": [5, 6]},
        {"arrival_s": 3, "messages": messages},
        {"arrival_s": 4, "prompt_tokens": 7},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    asks = read(str(file), FOUR, 0, HIGH, timed=True)
    assert [ask.arrival_s for ask in asks] == [1.0, 2.5, 3.0, 4.0]
    assert asks[0] == Ask(prompt=[5, 6], new_tokens=4, arrival_s=1.0)
    assert (asks[1].prompt, asks[1].new_tokens, asks[2].prompt) == ("b", 3, messages)
    assert len(asks[3].prompt) == 7
    assert [ask.arrival_s for ask in read(str(file), FOUR, 0, HIGH, timed=False)] == [None] * 4


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 2: "),
        ("[1]", "line 2: it is no JSON object"),
        ('{"promt": "a"}', "there is no field 'promt'; did you mean 'prompt'"),
        ('{"new_tokens": 3}', "give one of prompt"),
        ('{"prompt": "a", "prompt_tokens": 3}', "give one of prompt"),
        ('{"prompt": ""}', "neither a text nor a list of token ids"),
        ('{"prompt": [1, "a"]}', "neither a text nor a list of token ids"),
        ('{"messages": "hi"}', "messages is no list of objects"),
        ('{"prompt": "a", "new_tokens": 0}', "new_tokens is 0; it is a whole number of 1 or more"),
        ('{"prompt": "a"}', "arrival_s is None; in a trace each request has"),
        ('{"prompt": "a", "arrival_s": -1}', "arrival_s is -1"),
        ('{"prompt": "a", "arrival_s": Infinity}', "arrival_s is inf"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, text: str) -> None:
    file = tmp_path / "asks.jsonl"
    file.write_text('{"prompt": "a", "arrival_s": 0}\n' + line)
    with pytest.raises(ConfigurationError) as refused:
        read(str(file), FOUR, 0, HIGH, timed=True)
    assert text in refused.value.message
    assert str(file) in refused.value.message


def test_a_separator_within_a_text_ends_no_line(tmp_path: Path) -> None:
    file = tmp_path / "asks.jsonl"
    texts = ["a\u2028b", "c\x85d\u2029", "e"]
    file.write_text("\r\n".join(json.dumps({"prompt": text}, ensure_ascii=False) for text in texts), encoding="utf-8")
    assert [ask.prompt for ask in read(str(file), FOUR, 0, HIGH, timed=False)] == texts


def test_no_file_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read(str(tmp_path / "none"), FOUR, 0, HIGH, timed=False)
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigurationError, match="has no requests"):
        read(str(tmp_path / "empty"), FOUR, 0, HIGH, timed=False)


def test_when_requests_are_due() -> None:
    asks = [Ask(prompt="a", new_tokens=1, arrival_s=float(number)) for number in range(5)]
    assert Load(mode="closed", value=3).arrivals(asks, "s") is None
    assert Load(mode="bursts", value=2, every_s=1.5).arrivals(asks, "s") == [0, 0, 1.5, 1.5, 3.0]
    assert Load(mode="trace", value=2).arrivals(asks, "s") == [0, 0.5, 1.0, 1.5, 2.0]


def test_poisson_arrivals_have_the_rate_and_the_spread_of_such() -> None:
    asks = [Ask(prompt="a", new_tokens=1)] * 4001
    due = Load(mode="poisson", value=8).arrivals(asks, "s")
    assert due is not None
    assert due == Load(mode="poisson", value=8).arrivals(asks, "s")
    assert due != Load(mode="poisson", value=8).arrivals(asks, "t")
    assert due[0] == 0
    gaps = [after - before for before, after in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 8, rel=0.06)
    assert deviation == pytest.approx(mean, rel=0.08)  # as large as the mean: exponential


@pytest.mark.parametrize(
    ("load", "requests", "streams", "text"),
    [
        (Load(mode="closed", value=64), 128, 64, "64 at a time"),
        (Load(mode="closed", value=1), 16, 1, "1 at a time"),
        (Load(mode="poisson", value=2.5), 50, 1, "2.5 requests/s"),
        (Load(mode="bursts", value=8, every_s=2), 32, 8, "8 every 2 s"),
        (Load(mode="trace", value=2), 16, 1, "trace x 2"),
    ],
)
def test_what_a_load_says_of_itself(load: Load, requests: int, streams: int, text: str) -> None:
    assert (load.requests, load.streams, str(load)) == (requests, streams, text)
    assert Load(**load.facts()) == load
