"""A Hugging Face id is fetched through the hub's own client from a server that answers the hub's routes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.hub.huggingface import fetch_from_hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CHECKPOINT = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"T",
    "model.safetensors.index.json": b'{"weight_map": {}}',
    "model-00001-of-00001.safetensors": b"weights",
    "additional_chat_templates/tool.jinja": b"U",
    "README.md": b"# no",
    "pytorch_model.bin": b"pickle",
    "modeling_own.py": b"raise SystemExit",
    "consolidated.safetensors": b"again",
    "original/consolidated.safetensors": b"again",
    "onnx/config.json": b"{}",
    "modules.json": b"[]",
    "1_Pooling/config.json": b"{}",
    "2024/config.json": b"{}",
}
FETCHED = sorted(
    [
        "additional_chat_templates/tool.jinja",
        "chat_template.jinja",
        "config.json",
        "model-00001-of-00001.safetensors",
        "model.safetensors.index.json",
        "modules.json",
        "1_Pooling/config.json",
        "tokenizer.json",
    ]
)


class FakeHub(ThreadingHTTPServer):
    """Repositories by id; `errors`: id -> (status, X-Error-Code); `asked`: every request, and its token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {"org/tiny": CHECKPOINT}
        self.errors: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[str, str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Silence: stderr belongs to the tests."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        path = unquote(split.path).strip("/").split("/")
        self.server.asked.append((self.command, split.path, self.headers.get("Authorization")))
        api = path[:2] == ["api", "models"]
        owner, name, *rest = path[2:] if api else path
        repo = f"{owner}/{name}"
        if repo in self.server.errors:
            status, code = self.server.errors[repo]
            self.answer(status, b"{}", {"X-Error-Code": code} if code else {})
        elif repo not in self.server.repositories:
            self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif api and not rest:
            self.info(repo)
        elif rest[1] not in ("main", COMMIT):
            self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif api and rest[0] == "revision":
            self.info(repo)
        elif api and rest[0] == "tree":
            assert parse_qs(split.query)["recursive"][0].lower() == "true"
            self.tree(repo)
        else:
            assert rest[0] == "resolve"
            self.file(self.server.repositories[repo]["/".join(rest[2:])])

    def info(self, repo: str) -> None:
        siblings = [{"rfilename": file} for file in self.server.repositories[repo]]
        self.answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings, "tags": []}).encode())

    def tree(self, repo: str) -> None:
        files = self.server.repositories[repo].items()
        entries = [{"type": "file", "path": file, "size": len(data), "oid": oid(data)} for file, data in files]
        self.answer(200, json.dumps(entries).encode())

    def file(self, data: bytes) -> None:
        self.answer(200, data, {"ETag": f'"{oid(data)}"', "X-Repo-Commit": COMMIT})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with FakeHub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def files_below(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_safetensors_and_what_belongs_to_them_are_fetched_and_nothing_else(hub: FakeHub, tmp_path: Path) -> None:
    path = fetch_from_hub("org/tiny", cache=tmp_path, progress=False, endpoint=hub.url)
    assert files_below(path) == {name: CHECKPOINT[name] for name in FETCHED}
    assert COMMIT in str(path)
    asked = [target for _, target, _ in hub.asked]
    assert not [target for target in asked if target.endswith((".bin", ".py", ".md"))]


def test_what_is_cached_is_not_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    first = fetch_from_hub("org/tiny", cache=tmp_path, progress=False, endpoint=hub.url)
    hub.asked.clear()
    assert fetch_from_hub("org/tiny", cache=tmp_path, progress=False, endpoint=hub.url) == first
    assert not [asked for asked in hub.asked if asked[0] == "GET" and "/resolve/" in asked[1]]


def test_a_hub_that_is_down_does_not_matter_once_all_is_cached(hub: FakeHub, tmp_path: Path) -> None:
    first = fetch_from_hub("org/tiny", cache=tmp_path, progress=False, endpoint=hub.url)
    hub.errors["org/tiny"] = (503, "")
    assert fetch_from_hub("org/tiny", cache=tmp_path, progress=False, endpoint=hub.url) == first


def refusal(hub: FakeHub, tmp_path: Path, repo: str = "org/tiny", **arguments: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        fetch_from_hub(repo, cache=tmp_path, progress=False, endpoint=hub.url, **arguments)
    assert repo in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.message


def test_refusals_say_what_to_do(hub: FakeHub, tmp_path: Path) -> None:
    assert "has no model org/none" in refusal(hub, tmp_path, "org/none")
    assert "--revision" in refusal(hub, tmp_path, revision="v9")
    hub.errors["org/tiny"] = (403, "GatedRepo")
    assert f"accept its conditions at {hub.url}/org/tiny" in refusal(hub, tmp_path)
    hub.errors["org/tiny"] = (401, "")
    assert "HF_TOKEN" in refusal(hub, tmp_path)
    hub.errors["org/tiny"] = (500, "")
    assert "500" in refusal(hub, tmp_path)
    assert "no valid Hugging Face id" in refusal(hub, tmp_path, "org/a--b")


def test_a_model_without_safetensors_says_what_it_has(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["org/old"] = {"config.json": b"{}", "pytorch_model.bin": b"pickle", "model.Q4.gguf": b"GGUF"}
    message = refusal(hub, tmp_path, "org/old")
    assert "holds no safetensors" in message
    assert "pytorch_model.bin, model.Q4.gguf" in message
    assert not [target for _, target, _ in hub.asked if target.endswith((".bin", ".gguf"))]
    hub.repositories["org/empty"] = {".gitattributes": b""}
    assert ".gitattributes" in refusal(hub, tmp_path, "org/empty")


def test_no_server_at_all(tmp_path: Path, hub: FakeHub) -> None:
    unused = FakeHub()
    url = unused.url
    unused.server_close()
    with pytest.raises(ConfigurationError, match="does not answer") as caught:
        fetch_from_hub("org/tiny", cache=tmp_path, progress=False, endpoint=url)
    assert url in caught.value.message
    assert "HF_ENDPOINT" in caught.value.message


def locate_in_a_process(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As the command line does it: the hub's client reads the environment when it is first imported."""
    code = (
        "from jackfield.hub.locate import locate_model\n"
        "from jackfield.config.errors import ConfigurationError\n"
        "import sys\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        "try: print(locate_model('org/tiny', progress=False))\n"
        "except ConfigurationError as error: sys.exit(f'refused: {error}')\n"
        "assert 'torch' not in sys.modules\n"
    )
    environ = {**os.environ, **environ}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)


def test_the_hub_s_own_variables_hold(hub: FakeHub, tmp_path: Path) -> None:
    environ = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_secret", "HF_HUB_OFFLINE": "1"}
    offline = locate_in_a_process(environ)
    assert offline.stderr.startswith("refused: org/tiny is not (wholly) in the hub's cache, and HF_HUB_OFFLINE")
    assert hub.asked == []
    online = locate_in_a_process({**environ, "HF_HUB_OFFLINE": "0"})
    assert online.returncode == 0, online.stderr
    assert "source='hub', name='org/tiny'" in online.stdout
    assert hub.asked
    assert {token for _, target, token in hub.asked if "org/tiny" in target} == {"Bearer hf_secret"}
    hub.asked.clear()
    again = locate_in_a_process(environ)
    assert again.stdout == online.stdout
    assert hub.asked == []
