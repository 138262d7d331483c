"""Two hundred mixed random requests (times `--soak-factor`) against a real server whose memory is far too small: valid, invalid,
of every protocol, constrained or not, aborted by id, disconnected at any point, timed out, sessions, background responses, with
flushes and scrapes between them, and the grammar compiler killed. At the end nothing is left, memory is flat, the log has no
other error, the compiler lives, and who asked the same greedily has always had the same."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.http import soak_protocols as protocols
from tests.e2e.http.servers import Server, events, raw_events, serving, until
from tests.e2e.http.soak_mix import BAD, ENDLESS, check, random_request, sampling, text
from tests.e2e.http.test_http_tools import flat, rebuilt

pytestmark = [pytest.mark.soak, pytest.mark.slow]

REQUESTS = 200
AT_ONCE = 14
STATUSES = {200, 400, 404, 503}
WITNESSES = [f"Witness {i}: " + "say it once more, " * (3 * i) for i in range(6)]
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "initializer_range": 0.25,
    "torch_dtype": "float32",
}
FLAGS = [
    *("--load-format", "dummy"),
    *("--dtype", "float32"),
    *("--check-invariants", "step"),
    "--skip-server-warmup",
    *("--metrics", "prometheus"),
    *("--max-total-tokens", "960"),
    *("--schedule-conservativeness", "0.01"),
    *("--max-prefill-tokens", "64"),
    *("--chunked-prefill-size", "32"),
    *("--max-running-requests", "8"),
    *("--max-queued-requests", "24"),
    *("--schedule-policy", "priority"),
    *("--option", "schedule_policy.priority.preempt_difference=2"),
    *("--request-running-timeout", "3"),
    *("--kv-tier", "host"),
    *("--kv-tier-block-tokens", "16"),
    *("--option", "kv_tier.host.size_mib=4"),
    *("--option", "kv_tier.host.min_load_tokens=16"),
    *("--logits-processors", "no-repeat-ngram"),
    *("--logits-processors", "dry"),
    *("--max-sessions", "16"),
    *("--served-model-name", protocols.MODEL),
    *("--tool-call-parser", "hermes"),
    *("--reasoning-parser", "think"),
    "--enable-response-store",
    *("--response-store-entries", "16"),
]


@pytest.fixture(scope="module")
def model(embedded_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two small layers with the embedded model's tokenizer."""
    from jackfield_models_loaders.gguf_source import GgufSource

    files = GgufSource(embedded_model).tokenizer()
    folder = tmp_path_factory.mktemp("soak-model")
    special = dict(files.special_tokens)
    words = json.loads(files.tokenizer_json)["model"]["vocab"]
    ends = {f"{role}_id": words[special[role]] for role in ("bos_token", "eos_token")}
    (folder / "config.json").write_text(json.dumps({**TINY, "vocab_size": len(words), **ends}))
    (folder / "tokenizer.json").write_bytes(files.tokenizer_json)
    settings = {**special, "chat_template": files.chat_template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.model
@pytest.mark.parametrize(("topology", "event_loop"), [("processes", "overlap"), ("inline", "normal")])
async def test_random_requests_leave_nothing_behind(
    model: Path, topology: str, event_loop: str, soak_factor: int, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model-path", str(model), "--topology", topology, "--event-loop", event_loop, *FLAGS]
    with serving(*flags, check=False) as server:
        soak = Soak(server, random.Random(topology))
        await asyncio.to_thread(server.generate, input_ids=[3, 4], sampling_params={"max_new_tokens": 4})
        await asyncio.to_thread(assert_compiles, server, "so")  # so that there is a compiler to be killed
        settled = None
        for number in range(soak_factor):
            soak.kill_compiler()
            await soak.one_round()
            await asyncio.to_thread(server.assert_alive)
            await asyncio.to_thread(assert_compiles, server, f"so {number}")
            settled = settled or footprint(server)
        before, after = settled, footprint(server)
        assert before is not None
        assert after["descriptors"] <= before["descriptors"] + 8, (before, after)
        assert after["threads"] <= before["threads"] + 4, (before, after)
        assert after["resident"] <= before["resident"] * 1.2 + 64 * 2**20, (before, after)
        info = server.state()
        soak.seen["retractions"] = info["scheduler"]["retractions"]
        soak.seen["loads"] = info["kv_tiers"][""]["loads"]
        with capsys.disabled():
            print(f"\nsoak {topology}, {event_loop}: {dict(sorted(soak.seen.items()))} {before} {after}")
        assert info["sessions"]["open"] == 0
        assert info["kv_tiers"]["host"]["errors"] == 0
        assert info["faults"] == {}
        for kind in (
            "200",
            "400",
            "404",
            "retractions",
            "loads",
            "aborted",
            "turns",
            "hung up",
            "request_running_timeout",
            "witness",
            "protocols",
            "twins",
            "background",
            "compilers killed",
        ):
            assert soak.seen[kind] > 0, (kind, soak.seen)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0, server.log
        errors = [line for line in server.log.splitlines() if line.startswith(("ERROR", "CRITICAL", "Traceback"))]
        assert len([line for line in errors if "the grammar compiler's process" in line]) == len(errors), errors
        assert len(errors) <= soak.seen["compilers killed"]


class Soak:
    def __init__(self, server: Server, dice: random.Random) -> None:
        self.server = server
        self.dice = dice
        self.seen: Counter[str] = Counter()
        self.said: dict[str, list[int]] = {}
        self.number = 0

    async def one_round(self) -> None:
        gate = asyncio.Semaphore(AT_ONCE)
        limits = httpx.Limits(max_connections=AT_ONCE * 2)
        async with self.server.async_client(limits=limits) as client:

            async def one(seed: int) -> None:
                async with gate:
                    await self.act(client, random.Random(seed))

            await asyncio.gather(*(one(self.dice.randrange(2**60)) for _ in range(REQUESTS)))

    async def act(self, client: httpx.AsyncClient, dice: random.Random) -> None:
        act = dice.random()
        if act < 0.01:
            await client.post("/flush_cache")
        elif act < 0.02:
            self.kill_compiler()
        elif act < 0.04:
            assert (await client.get("/metrics")).status_code == 200
        elif act < 0.14:
            await self.post(client, *dice.choice(BAD + protocols.BAD), good=False)
        elif act < 0.16:
            await self.post(client, "/generate", {"text": text(dice), "sampling_params": ENDLESS, "priority": 50})
        elif act < 0.24:
            await self.session(client, dice)
        elif act < 0.32:
            await self.abort(client, dice)
        elif act < 0.40:
            await self.witness(client, dice)
        elif act < 0.42:
            await self.background(client, dice)
        elif act < 0.55:
            draw = dice.choice([random_request, protocols.protocol_request])
            await self.hang_up(client, *draw(dice), lines=dice.choice([1, 3, 20]))
        elif act < 0.75:
            path, body = protocols.protocol_request(dice)
            answer = await self.post(client, path, body, good=True)
            if answer is not None:
                self.seen["protocols"] += 1
                protocols.check(path, body, answer)
        elif act < 0.82:
            await self.twins(client, {**protocols.chat(dice), "seed": dice.randrange(99)})
        else:
            path, body = random_request(dice)
            answer = await self.post(client, path, body)
            if answer is not None:
                check(path, body, answer)

    async def post(self, client: httpx.AsyncClient, path: str, body: Any, good: bool | None = None) -> Any:
        """The answer, or None if there is none: then it is one of the errors that may be, in their shape. good: True if it may
        not be refused, False if it has to be; where that is known."""
        answer = await client.post(path, json=body)
        self.seen[str(answer.status_code)] += 1
        assert answer.status_code in STATUSES, (path, body, answer.text)
        if answer.status_code == 200:
            assert good is not False, (path, body, answer.text)
            return answer.json()
        error = protocols.error_of(path, answer.json())
        assert answer.status_code == 503 or not good, (path, body, error)
        self.seen[str(error["code"])] += 1
        return None

    async def twins(self, client: httpx.AsyncClient, body: dict[str, Any]) -> None:
        """What is drawn, streamed and not, is the same, byte for byte."""
        whole = await self.post(client, protocols.CHAT, body, good=True)
        stream = await client.post(protocols.CHAT, json={**body, "stream": True})
        if whole is None or stream.status_code != 200 or '"error":' in raw_events(stream.text)[-1]:
            return
        self.seen["twins"] += 1
        chunks = events(stream)
        for choice in whole["choices"]:
            own = [
                {"choices": [one for one in chunk["choices"] if one["index"] == choice["index"]]} for chunk in chunks
            ]
            assert rebuilt(own) == flat({"choices": [choice]}), body

    def kill_compiler(self) -> None:
        """Whatever it has in hand."""
        for process in compilers(self.server):
            process.kill()
            self.seen["compilers killed"] += 1

    async def background(self, client: httpx.AsyncClient, dice: random.Random) -> None:
        """A response that runs by itself; looked at, cancelled, forgotten."""
        body = {**protocols.response(dice), "store": True, "background": True}
        made = await self.post(client, protocols.RESPONSES, body)
        if made is None:
            return
        self.seen["background"] += 1
        path = f"{protocols.RESPONSES}/{made['id']}"
        steps = [client.get(path), client.post(f"{path}/cancel"), client.delete(path)]
        for step in steps:
            # 404: others have pushed it out of the store; 400: it is over already.
            assert (await step).status_code in (200, 400, 404)

    async def hang_up(self, client: httpx.AsyncClient, path: str, body: Any, lines: int) -> None:
        """Read a few lines, then go away."""
        async with client.stream("POST", path, json={**body, "stream": True}) as answer:
            assert answer.status_code in STATUSES
            async for _ in answer.aiter_lines():
                lines -= 1
                if lines <= 0:
                    self.seen["hung up"] += 1
                    return

    async def abort(self, client: httpx.AsyncClient, dice: random.Random) -> None:
        """By its id, at some time of its life; it ends with what it has, or it had ended before."""
        self.number += 1
        rid = f"doomed-{self.number}"
        body = {"text": text(dice), "sampling_params": {**sampling(dice), "n": 1, "max_new_tokens": 300}, "rid": rid}
        asked = asyncio.create_task(self.post(client, "/generate", body))
        for _ in range(dice.choice([1, 2, 5])):
            assert (await client.get("/ping")).status_code == 200
        self.seen["aborted"] += (await client.post("/abort_request", json={"rid": rid})).json()["aborted"]
        answer = await asked
        assert answer is None or answer["meta_info"]["finish_reason"]["type"] in ("abort", "length", "stop")

    async def session(self, client: httpx.AsyncClient, dice: random.Random) -> None:
        opened = await client.post("/open_session", json={})
        if opened.status_code != 200:
            assert opened.status_code == 503
            return
        session = opened.json()
        for turn in range(dice.choice([1, 2, 3])):
            more = {"replace": True} if turn and dice.random() < 0.3 else {}
            body = {
                "text": text(dice),
                "sampling_params": {**sampling(dice), "n": 1},
                "session_params": {"id": session, **more},
            }
            if dice.random() < 0.2:
                await self.hang_up(client, "/generate", body, lines=2)
                break
            if await self.post(client, "/generate", body) is not None:
                self.seen["turns"] += 1
        assert (await client.post("/close_session", json={"session_id": session})).status_code == 200

    async def witness(self, client: httpx.AsyncClient, dice: random.Random) -> None:
        """The same greedy request, in whatever company: it always says the same."""
        prompt = dice.choice(WITNESSES)
        params = {"max_new_tokens": 48, "temperature": 0, "ignore_eos": True}
        answer = await self.post(
            client, "/generate", {"text": prompt, "sampling_params": params, "priority": dice.choice([-5, 0, 5])}
        )
        if answer is not None and answer["meta_info"]["finish_reason"]["type"] == "length":
            self.seen["witness"] += 1
            assert answer["output_ids"] == self.said.setdefault(prompt, answer["output_ids"])


def compilers(server: Server) -> list[psutil.Process]:
    """The grammar compiler's process, without its forks, and no zombie of one."""
    found = []
    for process in psutil.Process(server.process.pid).children(recursive=True):
        try:
            if "jackfield.managers.grammar.child" in process.cmdline() and process.parent() not in found:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def assert_compiles(server: Server, word: str) -> None:
    """word: one that was never asked for, since what was compiled is kept."""
    body = {"messages": protocols.HELLO, "max_tokens": 16, **protocols.forced(word)}
    assert server.post(protocols.CHAT, body).json()["choices"][0]["message"]["content"] == word
    family = psutil.Process(server.process.pid).children(recursive=True)
    until(lambda: len(compilers(server)) == 1)
    assert not [one for one in family if one.is_running() and one.status() == psutil.STATUS_ZOMBIE]


def footprint(server: Server) -> dict[str, int]:
    family = [psutil.Process(server.process.pid)]
    family += family[0].children(recursive=True)
    return {
        "descriptors": sum(process.num_fds() for process in family),
        "threads": sum(process.num_threads() for process in family),
        "resident": sum(process.memory_info().rss for process in family),
    }
