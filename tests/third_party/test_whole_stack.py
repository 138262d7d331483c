"""A stack of strangers alone: every kind but the worker is somebody else's, from wheels, and what comes out is the same.

Grammars and parsers need a tokenizer, which this tiny model has none of: strangers of those serve in test_served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.third_party.environment import STRANGERS, Environment
from tests.third_party.test_installed import script

pytestmark = pytest.mark.slow

RUN = """
import json, socket, sqlite3
from pathlib import Path
import numpy as np
import torch
from transformers import GemmaConfig, GemmaForCausalLM
from jackfield import Engine

torch.manual_seed(0)
config = GemmaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     head_dim=16, vocab_size=128, max_position_embeddings=256, eos_token_id=1, bos_token_id=2, pad_token_id=0)
model = GemmaForCausalLM(config)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.randn_like(parameter) * (0.1 if "norm" in name else 0.3))
model.save_pretrained("plain")
Path("arrays").mkdir()
Path("arrays/config.json").write_text(Path("plain/config.json").read_text())
np.savez("arrays/model.npz", **{name: value.numpy() for name, value in model.state_dict().items() if name != "lm_head.weight"})

prompts = [[3 + (5 * i * j) % 120 for i in range(n)] for j, n in enumerate([1, 17, 40, 90], 1)]
greedy = {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}
settings = dict(skip_tokenizer_init=True, dtype="float32", topology="inline", page_size=16, max_total_tokens=1024,
                model_impl="gemma", check_invariants="step")

def rounds(**more):
    with Engine(**settings, **more) as engine:
        told = [engine.generate(input_ids=prompts, sampling_params=greedy) for _ in range(2)]
        info = engine.get_server_info()
    ids = [[answer["output_ids"] for answer in answers] for answers in told]
    cached = sum(answer["meta_info"]["cached_tokens"] for answer in told[1])
    plugins = {row["kind"]: row["distribution"] for row in info["stack"]["plugins"]}
    return {"ids": ids, "cached": cached, "plugins": plugins, "faults": info["faults"]}

daemon = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
daemon.bind(("127.0.0.1", 0))
Path("open").touch()
ours = rounds(model_path="plain")
theirs = rounds(
    model_path="arrays", load_format="npz", ops="double", attention_backend="columnar", cache_policy="lfu",
    schedule_policy="least-work", event_loop="turns", routes=["kobold"], kv_tier=["dict"], kv_tier_block_tokens=16, gate=["file"],
    logits_processors=["allow-ids"], metrics=["statsd"], observer=["sqlite"],
    options={"gate.file": {"path": "open"}, "metrics.statsd": {"port": daemon.getsockname()[1]},
             "observer.sqlite": {"path": "run.db"}},
)
daemon.settimeout(60)
theirs["metrics"] = daemon.recv(65535).decode()
theirs["rows"] = [sqlite3.connect("run.db").execute(f"select count(*) from {table}").fetchone()[0]
                  for table in ("requests", "steps")]
print(json.dumps([ours, theirs]))
"""


@pytest.mark.goal_row(1, 3, 21)
def test_a_stack_of_strangers_gives_the_same_tokens(environment: Environment, tmp_path: Path) -> None:
    ours, theirs = script(environment, tmp_path, RUN)
    assert ours["plugins"]["model"] == "gemma-model"
    elsewhere = ["replay-worker", "choice-grammar", "tag-parser"]
    assert sorted([*theirs["plugins"].values(), *elsewhere]) == sorted([*STRANGERS, "jackfield-worker-torch"])
    assert theirs["ids"] == ours["ids"]
    assert theirs["ids"][0] == theirs["ids"][1]
    assert theirs["cached"] > 0
    assert theirs["faults"] == {}
    assert "jackfield_" in theirs["metrics"]
    requests, steps = theirs["rows"]
    assert requests == 2 * len(theirs["ids"][0])
    assert steps > 0
