"""Who a server is and whom it lets in, on the embedded model: served names with a colon (B21), ids of live requests (B46), keys
on every route (B82)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from jackfield.hookspecs import RouteLevel
from tests.e2e.http.servers import DEADLINE, Server, serving, until
from tests.unit.http.route_walk import ALL

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
ADMIN = {"authorization": "Bearer a"}
WRONG: tuple[dict[str, str], ...] = (
    {},
    {"authorization": "Basic k"},
    {"authorization": "Bearer K"},
    {"authorization": "Bearer"},
    {"x-api-key": "no"},
)


@pytest.fixture(scope="module")
def keyed() -> Iterator[Server]:
    """check is off because it asks without a key; what it checks is checked here."""
    flags = ("--served-model-name", "a:b", "--api-key", "k", "--admin-api-key", "a", "--max-total-tokens", "4096")
    with serving(*flags, check=False) as server:
        yield server
        with server.client(headers=ADMIN) as client:
            kv = client.get("/server_info").json()["kv"]
            assert kv["free"] + kv["evictable"] == kv["total"]
            assert client.get("/health").status_code == 200
        assert "ERROR" not in server.log


@pytest.fixture
def client(keyed: Server) -> Iterator[httpx.Client]:
    with keyed.client(headers=ADMIN) as client:
        yield client


def test_b21_a_served_name_with_a_colon_is_one_name(client: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 1}
    assert client.post(CHAT, json={**body, "model": "a:b"}).json()["model"] == "a:b"
    for name in ("a", "b", "a:zz", "a:b:c"):
        answer = client.post(CHAT, json={**body, "model": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_b46_a_live_id_is_refused_and_the_first_is_unharmed(client: httpx.Client) -> None:
    body = {"text": "Go", "rid": "same", "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/generate", json=body)
        until(lambda: client.get("/server_info").json()["scheduler"]["running"] == 1)
        refused = client.post("/generate", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "rid")
        assert not first.done()
        client.post("/abort_request", json={"rid": "same"})
        assert first.result(DEADLINE).json()["meta_info"]["id"] == "same"
    until(lambda: client.get("/server_info").json()["scheduler"]["running"] == 0)


def test_b82_each_route_asks_for_its_key(keyed: Server) -> None:
    with keyed.client() as client:
        for walked in ALL:
            for method in walked.route.methods:
                seen = [client.request(method, walked.path, headers=headers).status_code for headers in WRONG]
                mine = client.request(method, walked.path, headers={"authorization": "bearer k"}).status_code
                where = (method, walked.path, seen, mine)
                if walked.route.level is RouteLevel.OPEN:
                    assert not {401, 403} & {*seen, mine}, where
                else:
                    assert set(seen) == {401}, where
                    assert (mine == 403) is (walked.route.level is RouteLevel.ADMIN), where
                    assert mine != 401, where
        assert client.request("OPTIONS", CHAT).status_code in (401, 405)
