"""A replica of processes answers as an inline one does, wherever it is made and whoever asks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from jackfield import Engine
from jackfield.entrypoints.calls import Call
from jackfield.entrypoints.child_process import child_environment
from jackfield.managers.requests.generate_request import GenerateRequest
from tests.e2e.engines import assert_alive, simulated, tiny
from tests.e2e.replicas import PATIENCE, Script, nothing_left, pids, wait_gone

GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
PROMPTS = [[3 + (7 * i * j) % 120 for i in range(n)] for j, n in enumerate([1, 5, 16, 41, 90, 200], 1)]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_left():
        yield


def small(model: Path, **args: Any) -> Engine:
    """The simulated worker over the tiny model's vocabulary."""
    return tiny(model, **{"worker": "simulated", "topology": "processes", **args})


def until_closed(engine: Engine) -> None:
    """Requests that nobody reads on are ended by the driver, which nobody waits for."""
    deadline = time.monotonic() + PATIENCE
    while engine._runtime.tokenizer_manager.rid_to_state and time.monotonic() < deadline:
        engine.get_server_info()
    assert not engine._runtime.tokenizer_manager.rid_to_state


def test_tokens_are_those_of_the_inline_topology(tiny_model: Path) -> None:
    answers = {}
    for topology in ("inline", "processes"):
        with tiny(tiny_model, topology=topology, random_seed=5) as engine:
            greedy = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
            drawn = engine.generate(input_ids=PROMPTS, sampling_params={**GREEDY, "temperature": 1.0, "seed": 11})
            stream = list(engine.generate(input_ids=PROMPTS[3], sampling_params=GREEDY, stream=True))
            assert stream[-1]["output_ids"] == greedy[3]["output_ids"]
            assert [len(part["output_ids"]) for part in stream] == sorted({len(part["output_ids"]) for part in stream})
            answers[topology] = [answer["output_ids"] for answer in [*greedy, *drawn]]
            assert_alive(engine)
            assert engine.get_server_info()["args"]["topology"] == topology
    assert answers["processes"] == answers["inline"]


@pytest.mark.model
def test_text_and_stop_strings_are_those_of_the_inline_topology() -> None:
    text = "Grüße aus 東京 🎉 and then STOP here"
    answers = {}
    for topology in ("inline", "processes"):
        with simulated(script=text, topology=topology) as engine:
            params = [{"max_new_tokens": 40}, {"max_new_tokens": 40, "stop": ["STOP"]}]
            whole = engine.generate(["a", "b"], params)
            streamed = list(engine.generate("a", params[1], stream=True))
            answers[topology] = [(one["text"], one["output_ids"]) for one in [*whole, streamed[-1]]]
            assert whole[0]["text"].startswith(text)
            assert whole[1]["text"] == streamed[-1]["text"] == text[: text.index("STOP")]
            assert_alive(engine)
    assert answers["processes"] == answers["inline"]


@pytest.mark.goal_row(23)
def test_main_process_and_detokenizer_never_load_torch(tiny_model: Path, tmp_path: Path) -> None:
    code = """
import json, sys
from jackfield import Engine
settings = dict(skip_tokenizer_init=True, topology="processes", dtype="float32", max_total_tokens=512)
with Engine(model_path=sys.argv[1], **settings) as engine:
    engine.generate(input_ids=[3, 4], sampling_params={"max_new_tokens": 2})
    maps = {row["role"]: open(f"/proc/{row['pid']}/maps").read() for row in engine.get_server_info()["processes"]}
    print(json.dumps({role: "libtorch" in text for role, text in maps.items()} | {"modules": "torch" in sys.modules}))
"""
    with Script(tmp_path, code, str(tiny_model)) as script:
        code_, out, errors = script.finish()
    assert code_ == 0, errors
    assert json.loads(out) == {"main": False, "scheduler": True, "detokenizer": False, "modules": False}


def test_an_engine_outlives_the_thread_that_made_it(tiny_model: Path) -> None:
    """The system counts a child as orphaned when the thread that started it ends."""
    made: list[Engine] = []
    thread = threading.Thread(target=lambda: made.append(small(tiny_model)))
    thread.start()
    thread.join()
    with made[0] as engine:
        for _ in range(3):
            assert len(engine.generate(input_ids=[3], sampling_params=GREEDY)["output_ids"]) == 12
        assert_alive(engine)


async def test_an_engine_in_a_running_event_loop_as_a_notebook_has_it(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over = threading.Event()
    with small(tiny_model) as engine:
        expected = engine.generate(input_ids=[3, 4], sampling_params=GREEDY)["output_ids"]
        answers = await asyncio.gather(
            *(engine.async_generate(input_ids=[3, 4], sampling_params=GREEDY) for _ in range(8))
        )
        assert [answer["output_ids"] for answer in answers] == [expected] * 8
        stream = await engine.async_generate(input_ids=[3, 4], sampling_params=GREEDY, stream=True)
        parts = [part async for part in stream]
        assert parts[-1]["output_ids"] == expected
        submit = engine._mover.submit

        def told(request: GenerateRequest) -> Call:
            try:
                return submit(request)
            finally:
                handed_over.set()

        monkeypatch.setattr(engine._mover, "submit", told)
        doomed = asyncio.create_task(
            engine.async_generate(input_ids=[3], sampling_params={"max_new_tokens": 400, "ignore_eos": True})
        )
        await asyncio.sleep(0)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        # Cancelled while a thread is still handing the request over: before that is done, there is nothing to wait for.
        assert await asyncio.to_thread(handed_over.wait, PATIENCE)
        await asyncio.to_thread(until_closed, engine)
        assert_alive(engine)


def test_a_script_without_a_main_guard_that_shuts_nothing_down(tiny_model: Path, tmp_path: Path) -> None:
    code = """
import sys
from jackfield import Engine
engine = Engine(model_path=sys.argv[1], skip_tokenizer_init=True, topology="processes", worker="simulated")
print(len(engine.generate(input_ids=[3], sampling_params={"max_new_tokens": 5, "ignore_eos": True})["output_ids"]))
print(*(row["pid"] for row in engine.get_server_info()["processes"]))
stream = engine.generate(input_ids=[3], sampling_params={"max_new_tokens": 400, "ignore_eos": True}, stream=True)
next(stream)
"""
    with Script(tmp_path, code, str(tiny_model)) as script:
        code_, out, errors = script.finish()
    assert (code_, errors) == (0, "")
    count, children = out.splitlines()
    assert count == "5"
    wait_gone(*(int(pid) for pid in children.split()))


def test_ten_replicas_side_by_side(tiny_model: Path) -> None:
    engines: list[Engine] = []
    try:
        threads = [threading.Thread(target=lambda: engines.append(small(tiny_model))) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(engines) == 10
        assert len({pid for engine in engines for pid in pids(engine).values()}) == 21
        for engine in engines:
            assert_alive(engine)
    finally:
        for engine in engines:
            engine.shutdown()


def test_two_hundred_requests_with_aborts_leave_nothing(tiny_model: Path) -> None:
    draw = random.Random(4)
    plans = [
        (draw.randint(1, 60), draw.randint(0, 40), draw.choice(["read", "close", "drop", "whole"])) for _ in range(200)
    ]

    def one(engine: Engine, prompt: int, tokens: int, what: str) -> None:
        params = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
        given: Any = {"input_ids": [3 + prompt % 100] * prompt, "sampling_params": params}
        if what == "whole":
            assert len(engine.generate(**given)["output_ids"]) == tokens
            return
        stream = engine.generate(**given, stream=True)
        if what == "read":
            assert len(list(stream)[-1]["output_ids"]) == tokens
            return
        next(stream)
        if what == "close":
            stream.close()

    errors: list[BaseException] = []

    def several(engine: Engine, mine: list[Any]) -> None:
        try:
            for plan in mine:
                one(engine, *plan)
        except BaseException as error:
            errors.append(error)

    with small(tiny_model, max_running_requests=8, max_total_tokens=1024) as engine:
        threads = [threading.Thread(target=several, args=(engine, plans[i::10])) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        until_closed(engine)
        assert_alive(engine)


def test_shutdown_ends_open_requests(tiny_model: Path) -> None:
    engine = small(tiny_model)
    long = {"max_new_tokens": 400, "ignore_eos": True}
    streams = [engine.generate(input_ids=[3, 4], sampling_params=long, stream=True) for _ in range(5)]
    for stream in streams:
        next(stream)
    engine.shutdown()
    engine.shutdown()
    for stream in streams:
        last = [answer["meta_info"]["finish_reason"] for answer in stream][-1:]
        assert all(reason is not None for reason in last)
    with pytest.raises(RuntimeError, match="shut down"):
        engine.generate(input_ids=[3])


def test_b87_only_private_unix_sockets_and_a_foreign_blob_is_dropped(
    tiny_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with small(tiny_model) as engine:
        for pid in pids(engine).values():
            assert [
                one for one in psutil.Process(pid).net_connections("inet") if one.status == psutil.CONN_LISTEN
            ] == []
        inbox = engine._runtime.inbox
        directory = inbox.path.parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        sockets = sorted(directory.iterdir())
        assert [path.name for path in sockets] == ["detokenizer.sock", "main.sock", "scheduler.sock"]
        with zmq.Context() as context:
            for path in sockets:
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                with context.socket(zmq.PUSH) as foreign:
                    foreign.connect(f"ipc://{path}")
                    for _ in range(2):
                        foreign.send(b"\x80\x04\x95\x0e\x00\x00\x00\x00\x00\x00\x00}\x94.")
        while inbox.bad_frames < 2:
            engine.get_server_info()
        assert_alive(engine)
    told = capfd.readouterr().err
    assert told.count("dropped what came to scheduler.sock") == told.count("dropped what came to detokenizer.sock") == 1


def test_each_process_tells_its_observers(tiny_model: Path, tmp_path: Path) -> None:
    options = {"observer.jsonl": {"directory": str(tmp_path)}}
    with small(tiny_model, observer="jsonl", options=options) as engine:
        engine.generate(input_ids=[3, 4], sampling_params=GREEDY)
        roles = pids(engine)
        digest = engine.get_server_info()["stack"]["hash"]
    requests = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [line["event"] for line in requests] == ["started", "received", "finished", "stopped"]
    assert {line["event"] for line in steps} == {"started", "scheduled", "decided", "committed", "stopped"}
    for lines, role in ((requests, "main"), (steps, "scheduler")):
        assert (lines[0]["role"], lines[0]["pid"], lines[0]["stack_hash"]) == (role, roles[role], digest)


def test_keys_are_no_business_of_the_children(tiny_model: Path) -> None:
    with small(tiny_model, api_key="hush-hush-key") as engine:
        for role, pid in pids(engine).items():
            if role != "main":
                process = psutil.Process(pid)
                assert "hush-hush-key" not in " ".join([*process.cmdline(), *process.environ().values()])
        assert "hush-hush-key" not in json.dumps(engine.get_server_info())


def test_openmp_threads_of_children_sleep_unless_the_user_decides() -> None:
    found = child_environment({"OMP_NUM_THREADS": "1"}, ["/a", "/b"])
    assert found == {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": f"/a{os.pathsep}/b"}
    assert child_environment({"OMP_WAIT_POLICY": "active"}, [])["OMP_WAIT_POLICY"] == "active"
