"""A stranger's KV tier and a stranger's gate, installed from wheels: through an engine of either topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.third_party.environment import Environment
from tests.third_party.test_installed import jackfield, script

pytestmark = pytest.mark.slow

TIER = """
import json, sys
from jackfield import Engine

PROMPTS = [[(7 * i + 11 * k) % 120 + 2 for i in range(90)] for k in range(4)]

def rounds(engine, times):
    greedy = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
    return [[engine.generate(input_ids=prompt, sampling_params=greedy)["output_ids"] for prompt in PROMPTS]
            for _ in range(times)]

if __name__ == "__main__":
    model, topology, event_loop = sys.argv[1:]
    settings = dict(model_path=model, skip_tokenizer_init=True, dtype="float32", topology=topology, event_loop=event_loop,
                    max_total_tokens=160, context_length=128, check_invariants="step")
    with Engine(**settings) as engine:
        told = {"plain": rounds(engine, 1)[0]}
    with Engine(**settings, kv_tier=["dict"], kv_tier_block_tokens=16, options={"kv_tier.dict": {"most_blocks": 100}}) as engine:
        told["tiered"] = rounds(engine, 3)
        told["tiers"] = engine.get_server_info()["kv_tiers"]
        engine.flush_cache()
        for _ in range(10_000):  # a tier forgets on its own thread
            told["flushed"] = engine.get_server_info()["kv_tiers"]["dict"]["blocks"]
            if not told["flushed"]:
                break
        told["faults"] = engine.get_server_info()["faults"]
    print(json.dumps(told))
"""


@pytest.mark.parametrize(("topology", "event_loop"), [("inline", "normal"), ("processes", "overlap")])
def test_what_the_pool_lost_comes_back_from_a_strangers_tier(
    environment: Environment, tiny_model: Path, tmp_path: Path, topology: str, event_loop: str
) -> None:
    """The pool holds one prompt of four, so that each round finds in the tier what the one before was evicted of."""
    told = script(environment, tmp_path, TIER, str(tiny_model), topology, event_loop)
    assert told["tiered"] == [told["plain"]] * 3
    numbers = told["tiers"]["dict"]
    assert numbers["errors"] == 0
    assert numbers["hits"] >= 15
    assert numbers["capacity"] == 100 * (numbers["bytes"] // numbers["blocks"])
    assert told["tiers"][""]["loaded_tokens"] >= 240
    assert told["flushed"] == 0
    assert told["faults"] == {}


GATE = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from jackfield import Engine, RequestError

def put(text):
    Path("next").write_text(text)
    Path("next").rename("open")

def events(engine, rid):
    return [event["event"] for life in engine.why(rid)["requests"] for event in life["events"]]

if __name__ == "__main__":
    model, topology, event_loop = sys.argv[1:]
    settings = dict(model_path=model, skip_tokenizer_init=True, dtype="float32", topology=topology, event_loop=event_loop,
                    check_invariants="step")
    greedy = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
    prompts = [[5 + n] * 20 for n in range(3)]
    with Engine(**settings) as engine:
        told = {"plain": [a["output_ids"] for a in engine.generate(input_ids=prompts, sampling_params=greedy)]}
    # The engine is shut down before the threads are waited for, so that an error here ends the script.
    with ThreadPoolExecutor(3) as threads, Engine(**settings, gate=["file"], options={"gate.file": {"path": "open"}}) as engine:
        def ask(n, rid):
            try:
                return engine.generate(input_ids=prompts[n], sampling_params=greedy, rid=rid)["output_ids"]
            except RequestError as error:
                return [error.status_code, str(error)]
        asked = [threads.submit(ask, n, f"first-{n}") for n in range(3)]
        for n in range(3):
            while "gated" not in events(engine, f"first-{n}"):
                pass
        told["waiting"] = engine.get_server_info()["scheduler"]["waiting"]
        told["done"] = [one.done() for one in asked]
        put("")
        told["first"] = [one.result() for one in asked]
        told["events"] = events(engine, "first-0")
        told["open"] = ask(0, "open")
        put("closed Come back on Monday.")
        told["closed"], n = None, 0
        while told["closed"] is None or told["closed"] == told["open"]:  # until the gate has looked
            told["closed"] = ask(0, f"closed-{n}")
            n += 1
        told["kv"] = engine.get_server_info()["kv"]
    print(json.dumps(told))
"""


@pytest.mark.parametrize(("topology", "event_loop"), [("inline", "normal"), ("processes", "overlap")])
def test_requests_wait_at_a_strangers_gate(
    environment: Environment, tiny_model: Path, tmp_path: Path, topology: str, event_loop: str
) -> None:
    told = script(environment, tmp_path, GATE, str(tiny_model), topology, event_loop)
    assert told["done"] == [False] * 3
    assert told["waiting"] == 3
    assert told["first"] == told["plain"]
    assert told["events"] == ["arrived", "gated", "opened", "admitted", "prefill", "first_token", "ended"]
    assert told["open"] == told["plain"][0]
    assert told["closed"] == [503, "Come back on Monday."]
    assert told["kv"]["free"] + told["kv"]["evictable"] == told["kv"]["total"]


def test_what_is_missing_or_misspelt_is_told_before_the_start(environment: Environment, tmp_path: Path) -> None:
    message = jackfield(environment, tmp_path, "explain", "--gate", "file", code=2)
    assert 'options."gate.file".path' in message
    message = jackfield(environment, tmp_path, "explain", "--gate", "fiel", code=2)
    assert "did you mean 'file'?" in message
    flags = ("--kv-tier", "dict", "--option", "kv_tier.dict.most_block=3")
    assert "did you mean 'most_blocks'" in jackfield(environment, tmp_path, "explain", *flags, code=2)
