"""Processes that die, fail to start, or hang: one clear end, told at once, with nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from jackfield import Engine
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.calls import ReplicaFailed
from tests.e2e.engines import assert_alive, tiny
from tests.e2e.replicas import PATIENCE, Script, nothing_left, pids, run_directories, wait_gone
from tests.unit.stack.distributions import Site, plugin_row

LONG = {"max_new_tokens": 400, "ignore_eos": True}
ROLES = ["scheduler", "detokenizer"]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A folder on this process's import path, for plugins of a test."""
    site = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    return site


def small(model: Path, **args: Any) -> Engine:
    return tiny(model, **{"worker": "simulated", "topology": "processes", **args})


def slow(model: Path, **args: Any) -> Engine:
    """Each step takes its time, so that requests are open while something happens to them."""
    return small(model, options={"worker.simulated": {"realtime": True, "base_us": 20_000.0}}, **args)


def again_and_again(call: Callable[[], Any]) -> None:
    """The news of a death may be a moment behind the death."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        call()


def loop_plugin(site: Site, name: str, body: str) -> str:
    """An event loop like `normal`, with `body` in it."""
    source = f"""
import os, signal, threading, time
from jackfield.hookspecs import EventLoop, StepOutcome, hookimpl

class Loop(EventLoop):
    def __init__(self, phases):
        self.phases, self.steps = phases, 0
        self.begin()

    def begin(self): ...
    def at_step(self): ...
    def settle(self): ...

    def step(self):
        self.phases.ingest()
        self.phases.poll()
        batch = self.phases.next_batch()
        if batch is None:
            self.phases.idle()
            return StepOutcome.IDLE
        self.steps += 1
        self.at_step()
        step = self.phases.launch(batch)
        self.phases.sample(step)
        self.phases.commit(step)
        return StepOutcome.RAN

{body}

@hookimpl
def jackfield_event_loop(context):
    return Loop(context.phases)
"""
    site.add(f"acme-{name}", plugin_row("event_loop", name), sources={name.replace("-", "_"): source})
    return name


@pytest.mark.parametrize("load", ["idle", "busy"])
@pytest.mark.parametrize("role", ROLES)
def test_b78_a_killed_child_ends_the_replica_and_all_who_wait_hear_of_it(
    tiny_model: Path, role: str, load: str
) -> None:
    heard: list[BaseException] = []
    with slow(tiny_model) as engine:
        expected = rf"the {role} process \(pid {pids(engine)[role]}\) was killed by SIGKILL"

        def ask() -> None:
            try:
                engine.generate(input_ids=[3, 4], sampling_params=LONG)
            except ReplicaFailed as error:
                heard.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4 if load == "busy" else 0)]
        streams = [engine.generate(input_ids=[5], sampling_params=LONG, stream=True) for _ in threads]
        for thread, stream in zip(threads, streams, strict=True):
            thread.start()
            next(stream)
        os.kill(pids(engine)[role], signal.SIGKILL)
        for thread, stream in zip(threads, streams, strict=True):
            thread.join()
            with pytest.raises(ReplicaFailed, match=expected):
                list(stream)
        assert len(heard) == len(threads)
        wait_gone(*(pid for name, pid in pids(engine).items() if name != "main"))
        for call in (lambda: engine.generate(input_ids=[3]), engine.flush_cache, engine.get_server_info):
            with pytest.raises(ReplicaFailed, match=expected):
                again_and_again(call)


async def test_coroutines_hear_of_it_too(tiny_model: Path) -> None:
    with slow(tiny_model) as engine:
        stream = await engine.async_generate(input_ids=[3], sampling_params=LONG, stream=True)
        await anext(stream)
        whole = asyncio.create_task(engine.async_generate(input_ids=[3], sampling_params=LONG))
        await anext(stream)
        os.kill(pids(engine)["scheduler"], signal.SIGKILL)
        with pytest.raises(ReplicaFailed, match="killed by SIGKILL"):
            async for _ in stream:
                pass
        with pytest.raises(ReplicaFailed, match="killed by SIGKILL"):
            await whole


def test_a_signal_of_the_terminal_is_not_theirs_and_sigterm_ends_in_order(tiny_model: Path) -> None:
    with small(tiny_model) as engine:
        for role in ROLES:
            os.kill(pids(engine)[role], signal.SIGINT)
        assert_alive(engine)
        assert all(os.getsid(pid) != os.getsid(0) for role, pid in pids(engine).items() if role != "main")
        os.kill(pids(engine)["scheduler"], signal.SIGTERM)
        with pytest.raises(ReplicaFailed, match=r"the scheduler process .* ended with code 0"):
            again_and_again(lambda: engine.generate(input_ids=[3]))


BLOCKS = """
class Loop(Loop):
    def begin(self):
        with open({mark!r} + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename({mark!r} + ".new", {mark!r})
        threading.Event().wait()
"""


def appears(file: Path) -> str:
    """The file's text, once it is there."""
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} was never written"
        time.sleep(0.005)
    return file.read_text()


@pytest.mark.parametrize("victim", ["scheduler", "detokenizer", "interrupt"])
def test_b78_a_start_that_cannot_end_well_ends_at_once(
    tiny_model: Path, site: Site, tmp_path: Path, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "mark"
    loop = loop_plugin(site, f"blocks-{victim}", BLOCKS.format(mark=str(mark)))
    before = {child.pid for child in psutil.Process().children()}

    def strike() -> None:
        scheduler = int(appears(mark))
        (other,) = {child.pid for child in psutil.Process().children()} - before - {scheduler}
        if victim == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            os.kill(scheduler if victim == "scheduler" else other, signal.SIGKILL)

    thread = threading.Thread(target=strike, daemon=True)
    thread.start()
    error = KeyboardInterrupt if victim == "interrupt" else ReplicaFailed
    with pytest.raises(error, match=None if victim == "interrupt" else rf"the {victim} process .* killed by SIGKILL"):
        small(tiny_model, event_loop=loop)
    thread.join()
    assert "did not end in time" not in caplog.text  # they were given none


PARENT = """
import sys, threading
from jackfield import Engine
model, moment, *loop = sys.argv[1:]
stack = {"event_loop": loop[0]} if loop else {}
if loop:
    sys.path.insert(0, loop[1])
engine = Engine(model_path=model, skip_tokenizer_init=True, topology="processes", worker="simulated",
                options={"worker.simulated": {"realtime": True, "base_us": 20000.0}}, **stack)
if moment == "busy":
    stream = engine.generate(input_ids=[3], sampling_params={"max_new_tokens": 400, "ignore_eos": True}, stream=True)
    next(stream)
print(*(row["pid"] for row in engine.get_server_info()["processes"] if row["role"] != "main"), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("moment", ["idle", "busy", "starting"])
def test_b78_a_killed_parent_takes_all_with_it(tiny_model: Path, site: Site, tmp_path: Path, moment: str) -> None:
    arguments = [str(tiny_model), moment]
    mark = tmp_path / "mark"
    if moment == "starting":
        arguments += [loop_plugin(site, "blocks-parent", BLOCKS.format(mark=str(mark))), str(site.folder)]
    with Script(tmp_path, PARENT, *arguments) as script:
        if moment == "starting":
            appears(mark)
        else:
            script.line()
        children = [child.pid for child in psutil.Process(script.process.pid).children()]
        assert len(children) == 2
        mine = [path for path in run_directories() if f"-{script.process.pid}-" in path.name]
        assert len(mine) == 1
        script.process.kill()
        script.process.wait()
        wait_gone(*children)
        assert not mine[0].exists()


def test_a_child_that_refuses_is_shown_with_its_own_message_and_exit_code_2(tiny_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in tiny_model.iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[:-1000] if file.suffix == ".safetensors" else content)
    (broken / "tokenizer.json").write_text(Tokenizer(WordLevel({"hello": 0}, unk_token="hello")).to_str())
    command = [sys.executable, "-m", "jackfield", "generate", "hello", "--model-path", str(broken)]
    told = {}
    for topology in ("inline", "processes"):
        ended = subprocess.run(
            [*command, "--topology", topology], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path
        )
        assert ended.returncode == 2, ended.stderr
        assert "Traceback" not in ended.stderr
        # Beside which stack each process runs, which is another line for each.
        told[topology] = [line for line in ended.stderr.splitlines() if not line.startswith("INFO ")]
    assert told["processes"] == told["inline"]
    assert "safetensors" in told["processes"][0]
    debug = subprocess.run(
        [*command, "--topology", "processes", "--debug"], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path
    )
    assert debug.returncode == 2
    assert "child_life.py" in debug.stderr  # where it happened, in the child


def test_a_part_that_fails_in_a_child_is_told_with_its_own_words_and_traceback(tiny_model: Path, site: Site) -> None:
    body = """
class Loop(Loop):
    def at_step(self):
        if self.steps == 3:
            raise ZeroDivisionError("the loop's own words")
"""
    with small(tiny_model, event_loop=loop_plugin(site, "raises", body)) as engine:
        with pytest.raises(
            ReplicaFailed, match=r"scheduler process .*ZeroDivisionError: the loop's own words"
        ) as ended:
            engine.generate(input_ids=[3], sampling_params=LONG)
        causes = []
        error: BaseException | None = ended.value
        while error is not None:
            causes.append(str(error))
            error = error.__cause__
        assert any("at_step" in text and "Traceback" in text for text in causes)


def test_a_child_that_crashes_while_starting_is_told(tiny_model: Path, site: Site) -> None:
    body = """
class Loop(Loop):
    def begin(self):
        os._exit(7)
"""
    with pytest.raises(
        ReplicaFailed, match=r"the scheduler process \(pid \d+\) ended with code 7 while it started.*doctor"
    ):
        small(tiny_model, event_loop=loop_plugin(site, "leaves", body))


def test_a_child_that_does_not_end_is_made_to(tiny_model: Path, site: Site) -> None:
    body = """
class Loop(Loop):
    def settle(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Event().wait()
"""
    with small(tiny_model, event_loop=loop_plugin(site, "stays", body), shutdown_timeout=1) as engine:
        assert_alive(engine)


@pytest.mark.goal_row(22)
def test_other_code_in_a_child_stops_the_start(tiny_model: Path, site: Site) -> None:
    name = loop_plugin(site, "changes", "")
    with tiny(tiny_model, worker="simulated", event_loop=name) as engine:
        assert_alive(engine)
    (file,) = site.folder.glob("*/changes.py")
    file.write_text(file.read_text() + "\n# another line\n")
    with pytest.raises(ConfigurationError, match=rf"found other code .* in the package {file.parent.name}"):
        small(tiny_model, event_loop=name)


@pytest.mark.goal_row(22)
def test_what_only_the_parent_can_import_stops_the_start(
    tiny_model: Path, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.machinery

    name = loop_plugin(site, "hidden", "")
    (package,) = (path.parent for path in site.folder.glob("*/hidden.py"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    package.rename(elsewhere / package.name)

    class Hook:
        """As notebooks and editable installs have them."""

        @staticmethod
        def find_spec(full: str, path: Any = None, target: Any = None) -> Any:
            if full == package.name:
                return importlib.machinery.PathFinder.find_spec(full, [str(elsewhere)], target)
            return None

    monkeypatch.setattr(sys, "meta_path", [Hook, *sys.meta_path])
    with tiny(tiny_model, worker="simulated", event_loop=name) as engine:
        assert_alive(engine)
    with pytest.raises(ConfigurationError, match=rf"process refuses: .*{package.name}"):
        small(tiny_model, event_loop=name)
