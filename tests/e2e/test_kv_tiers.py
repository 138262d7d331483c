"""KV tiers through Engine on a tiny model: with a pool that is always too small, tokens are those without tiers, and the KV
really came back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from tests.e2e.engines import assert_alive, simulated, tiny

PROMPTS = [[(7 * i + 11 * k) % 120 + 2 for i in range(90)] for k in range(4)]
GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
SMALL = {"max_total_tokens": 160, "context_length": 128}


def run(engine: Any, rounds: int = 2) -> list[list[int]]:
    """One request behind the other, so that each has pushed the one before it out of the cache."""
    return [
        engine.generate(input_ids=prompt, sampling_params=GREEDY)["output_ids"]
        for _ in range(rounds)
        for prompt in PROMPTS
    ]


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> list[list[int]]:
    with tiny(tiny_model) as engine:
        return run(engine, 1)


def numbers(engine: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = engine.get_server_info()["kv_tiers"]
    return found


def options(tmp_path: Path, write: str) -> dict[str, Any]:
    return {
        "kv_tier.host": {"size_mib": 8, "write": write, "min_load_tokens": 16},
        "kv_tier.disk": {"size_mib": 64, "write": write, "min_load_tokens": 16, "path": str(tmp_path / "kv")},
    }


@pytest.mark.parametrize("tiers", [("host",), ("disk",), ("host", "disk")])
@pytest.mark.parametrize(("write", "page_size", "event_loop"), [("through", 1, "normal"), ("back", 16, "overlap")])
def test_tokens_are_the_same_and_loads_happened(
    tiny_model: Path,
    tmp_path: Path,
    expected: list[list[int]],
    tiers: tuple[str, ...],
    write: str,
    page_size: int,
    event_loop: str,
) -> None:
    chosen = {key: value for key, value in options(tmp_path, write).items() if key.removeprefix("kv_tier.") in tiers}
    with tiny(
        tiny_model,
        **SMALL,
        page_size=page_size,
        event_loop=event_loop,
        kv_tier=list(tiers),
        kv_tier_block_tokens=16,
        options=chosen,
    ) as engine:
        assert run(engine, 3) == expected * 3
        found = numbers(engine)
        assert found[""]["loads"] >= 3, found
        assert found[tiers[0]]["hits"] > 0
        assert sum(found[tier]["errors"] for tier in tiers) == 0
        engine.flush_cache()
        assert_alive(engine)


def test_disk_is_found_again_after_a_restart(tiny_model: Path, tmp_path: Path, expected: list[list[int]]) -> None:
    settings = {
        **SMALL,
        "kv_tier": ["disk"],
        "kv_tier_block_tokens": 16,
        "options": {"kv_tier.disk": options(tmp_path, "through")["kv_tier.disk"]},
    }
    with tiny(tiny_model, **settings) as engine:
        assert run(engine, 1) == expected
    files = sorted((tmp_path / "kv").iterdir())
    assert len(files) >= 4 * 5
    with tiny(tiny_model, **settings) as engine:
        answers = [engine.generate(input_ids=prompt, sampling_params=GREEDY) for prompt in PROMPTS]
        assert [answer["output_ids"] for answer in answers] == expected
        assert [answer["meta_info"]["cached_tokens"] for answer in answers] == [80] * 4
        assert [answer["meta_info"]["cached_tokens_details"] for answer in answers] == [{"device": 0, "disk": 80}] * 4
        again = engine.generate(input_ids=PROMPTS[-1], sampling_params=GREEDY)["meta_info"]
        assert again["cached_tokens_details"] == {"device": again["cached_tokens"]}
        assert numbers(engine)[""]["loads"] == 4
    for file in files[::2]:
        file.write_bytes(file.read_bytes()[:-7])
    with tiny(tiny_model, **settings) as engine:
        assert run(engine, 1) == expected
        assert numbers(engine)["disk"]["errors"] > 0
    # Another dtype is another model: nothing of it fits.
    with tiny(tiny_model, **{**settings, "dtype": "bfloat16"}) as engine:
        run(engine, 1)
        assert numbers(engine)[""]["loads"] == 0


def test_with_processes(tiny_model: Path, tmp_path: Path, expected: list[list[int]]) -> None:
    with tiny(
        tiny_model,
        **SMALL,
        topology="processes",
        kv_tier=["host"],
        kv_tier_block_tokens=16,
        options={"kv_tier.host": options(tmp_path, "back")["kv_tier.host"]},
    ) as engine:
        assert run(engine) == expected * 2
        assert numbers(engine)[""]["loads"] > 0
        assert_alive(engine)


def test_metrics_tell_of_tiers(tiny_model: Path, tmp_path: Path) -> None:
    with tiny(
        tiny_model,
        **SMALL,
        metrics=["prometheus"],
        metrics_interval=0,
        kv_tier=["host"],
        kv_tier_block_tokens=16,
        options={"kv_tier.host": options(tmp_path, "through")["kv_tier.host"]},
    ) as engine:
        run(engine, 2)
        shown = engine.expose_metrics()
        found = numbers(engine)
    assert shown is not None
    text = shown.body.decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def value(name: str, *labels: str) -> float:
        (found,) = [
            float(number)
            for series, number in lines.items()
            if series.startswith(f"jackfield_{name}{{") and all(label in series for label in labels)
        ]
        return found

    assert value("kv_tier_hits_total", 'tier="host"') == found["host"]["hits"] > 0
    assert value("kv_loaded_tokens_total") == found[""]["loaded_tokens"] > 0
    assert value("kv_tier_bytes_total", 'direction="read"') == found["host"]["bytes_read"]


def test_write_back_wants_a_cache_that_tells(tiny_model: Path) -> None:
    with pytest.raises(ConfigurationError, match="write-back needs to know what is evicted"):
        tiny(tiny_model, kv_tier=["host"], cache_policy="chunk", options={"kv_tier.host": {"write": "back"}})


def test_disk_without_a_path_is_refused() -> None:
    with pytest.raises(Exception, match=r"kv_tier.disk.*path: must be given"):
        simulated(kv_tier=["disk"])


def test_the_options_of_a_tier_are_part_of_the_stack_hash() -> None:
    hashes = []
    for size in (16, 32):
        with simulated(kv_tier=["host"], options={"kv_tier.host": {"size_mib": size}}) as engine:
            hashes.append(engine.get_server_info()["stack"]["hash"])
    assert hashes[0] != hashes[1]
