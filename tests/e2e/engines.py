"""Small engines for the end-to-end tests, and the state that every run must leave behind."""

from __future__ import annotations

from typing import Any

from jackfield import Engine


def simulated(script: Any = None, **args: Any) -> Engine:
    """The embedded model's tokenizer over the simulated worker, which emits `script` (case notation: FORCE)."""
    options: dict[str, dict[str, Any]] = dict(args.pop("options", {}))
    if script is not None:
        options["worker.simulated"] = {**options.get("worker.simulated", {}), "script": script}
    return Engine(worker="simulated", options=options, check_invariants="step", **{"topology": "inline", **args})


def without_tokenizer(**args: Any) -> Engine:
    """The simulated worker over ids alone."""
    return simulated(skip_tokenizer_init=True, **args)


def tiny(model: Any, **args: Any) -> Engine:
    """The torch worker on a tiny random checkpoint, float32, ids in and out."""
    return Engine(
        **{
            "model_path": str(model),
            "dtype": "float32",
            "skip_tokenizer_init": True,
            "check_invariants": "step",
            "topology": "inline",
            "max_total_tokens": 4096,
            **args,
        }
    )


def assert_alive(engine: Engine) -> None:
    """The case file's ALIVE: nothing runs or waits, every slot is accounted for, no lease is held, and it still answers."""
    info = engine.get_server_info()
    assert (info["scheduler"]["running"], info["scheduler"]["waiting"]) == (0, 0), info["scheduler"]
    kv = info["kv"]
    assert kv["free"] + kv["evictable"] == kv["total"], kv
    assert (kv["protected"], kv["pending"], kv["held"]) == (0, 0, 0), kv
    answer = engine.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 1, "temperature": 0})
    assert answer["meta_info"]["finish_reason"]["type"] in ("length", "stop")
