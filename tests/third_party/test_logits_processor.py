"""A stranger's logits processor, installed from a wheel: through an engine of either topology, alone and beside our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.third_party.environment import Environment
from tests.third_party.test_installed import jackfield, script

pytestmark = pytest.mark.slow

CODE = """
import json, sys
from jackfield import Engine

if __name__ == "__main__":
    told = {}
    with Engine(model_path=sys.argv[1], skip_tokenizer_init=True, dtype="float32", topology=sys.argv[2], event_loop=sys.argv[3],
                max_total_tokens=96, page_size=4, schedule_conservativeness=0.01, max_prefill_tokens=16,
                logits_processors=["no-repeat-ngram", "allow-ids"],
                options={"logits_processor.allow-ids": {"most_ids": 5}}) as engine:
        greedy = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}
        allow = {"allow-ids": {"ids": [7, 8, 9, 500], "most": 4, "then": 3}}
        short = {"max_new_tokens": 8}
        asks = [greedy, greedy | {"logits_processors": allow}, greedy,
                greedy | short | {"logits_processors": allow | {"no-repeat-ngram": {"ngram_size": 3}}}]
        prompts = [[5 + i] * 20 for i in range(4)]
        for name in ("first", "second"):
            told[name] = [answer["output_ids"] for answer in engine.generate(input_ids=prompts, sampling_params=asks)]
        told["alone"] = [engine.generate(input_ids=p, sampling_params=a)["output_ids"] for p, a in zip(prompts, asks)]
        many = greedy | {"logits_processors": {"allow-ids": {"ids": list(range(6)), "then": 3}}}
        for name, params in (("many", many), ("wrong", {"logits_processors": {"allow-ids": {"ids": [1, -1], "then": 3}}})):
            try:
                engine.generate(input_ids=[5], sampling_params=params)
            except Exception as error:
                told[name] = [error.status_code, error.param]
        told["kv"] = engine.get_server_info()["kv"]
    print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("topology", "event_loop"), [("inline", "normal"), ("inline", "overlap"), ("processes", "overlap")]
)
def test_it_shapes_the_answers_that_ask_for_it(
    environment: Environment, tiny_model: Path, tmp_path: Path, topology: str, event_loop: str
) -> None:
    told = script(environment, tmp_path, CODE, str(tiny_model), topology, event_loop)
    assert told["first"] == told["second"] == told["alone"]
    plain, allowed, _, both = told["first"]
    assert len(set(plain)) > 4
    assert sorted(allowed) == sorted([7, 8, 9] * 4 + [3] * 12)
    assert allowed[12:] == [3] * 12
    assert set(both) <= {7, 8, 9}
    assert len(both) == 8
    assert told["many"] == [500, None]
    assert told["wrong"] == [400, "logits_processors.allow-ids.ids.1"]
    assert told["kv"]["free"] + told["kv"]["evictable"] == told["kv"]["total"]


def test_its_parameters_are_shown(environment: Environment, tmp_path: Path) -> None:
    shown = jackfield(environment, tmp_path, "plugins", "show", "logits_processor.allow-ids")
    assert "logits_processors.allow-ids" in shown
    assert "The token that follows when all are used up." in shown
    assert "most_ids" in shown
    (details,) = json.loads(jackfield(environment, tmp_path, "plugins", "show", "logits_processor.allow-ids", "--json"))
    assert [field["name"] for field in details["parameter_fields"]] == ["ids", "most", "then"]
    assert details["flag"] == "--logits-processors"
