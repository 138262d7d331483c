"""Chat with a server over OpenAI's routes: Jackfield's, or any that has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from jackfield import __version__
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli.chat_backend import End, Piece
from jackfield.entrypoints.cli.chat_rows import stack_rows
from jackfield.managers.errors import RequestError

CONNECT_SECONDS = 10.0
MAX_LINE = 8 * 2**20
"""Characters of one event; a server that sends more is none that a chat can be had with."""


class RemoteBackend:
    """key: None for none. model: None: the first that the server offers. Raises ConfigurationError for an address that is none,
    RequestError if no server answers there."""

    def __init__(self, url: str, key: str | None, model: str | None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        headers = {"user-agent": f"jackfield-chat/{__version__}"} | (
            {} if key is None else {"authorization": f"Bearer {key}"}
        )
        try:
            # An answer may be long in coming: only the connection has a time limit. No proxy of the environment: it knows no
            # server of this machine.
            self._http = httpx.Client(
                base_url=self._url,
                headers=headers,
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                trust_env=False,
            )
            if httpx.URL(self._url).scheme not in ("http", "https"):
                raise httpx.InvalidURL("it has no http:// or https://")
        except httpx.InvalidURL as error:
            raise ConfigurationError(
                f"chat: --url {url!r} is no address such as http://127.0.0.1:30000: {error}"
            ) from error
        try:
            self.model = model or self._first_model()
        except BaseException:
            self._http.close()
            raise

    def ask(self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Iterator[Piece | End]:
        body = {
            "model": self.model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **params,
        }
        finish: str | None = None
        usage: Mapping[str, Any] = {}
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise _refusal(answer)
                for event in _events(answer.iter_text()):
                    if "error" in event:
                        raise _error(event, 500)
                    usage = event.get("usage") or usage
                    for choice in event.get("choices") or []:
                        finish = choice.get("finish_reason") or finish
                        yield from _pieces(choice.get("delta") or {})
        except httpx.HTTPError as error:
            raise self._gone(error) from error
        details = usage.get("prompt_tokens_details") or {}
        yield End(
            finish=finish,
            prompt_tokens=usage.get("prompt_tokens"),
            cached_tokens=details.get("cached_tokens"),
            completion_tokens=usage.get("completion_tokens"),
        )

    def stack(self) -> list[tuple[str, str]]:
        info = self._get("/server_info")
        try:
            return stack_rows(info)
        except (KeyError, TypeError) as error:
            raise RequestError(
                "the server does not tell of a stack; is it a Jackfield server?", status_code=404
            ) from error

    def close(self) -> None:
        self._http.close()

    def _first_model(self) -> str:
        models = self._get("/v1/models")
        try:
            return str(models["data"][0]["id"])
        except (LookupError, TypeError) as error:
            raise RequestError(f"{self._url} offers no model", status_code=404) from error

    def _get(self, path: str) -> Any:
        try:
            answer = self._http.get(path, timeout=CONNECT_SECONDS)
        except httpx.HTTPError as error:
            raise self._gone(error) from error
        if answer.status_code != 200:
            raise _refusal(answer)
        try:
            return answer.json()
        except ValueError as error:
            raise RequestError(f"{self._url}{path} does not answer with JSON", status_code=500) from error

    def _gone(self, error: httpx.HTTPError) -> RequestError:
        return RequestError(f"no server answers at {self._url}: {error or type(error).__name__}", status_code=503)


def _pieces(delta: Mapping[str, Any]) -> Iterator[Piece]:
    for name, reasoning in (("reasoning_content", True), ("content", False)):
        if isinstance(text := delta.get(name), str) and text:
            yield Piece(text, reasoning)


def _events(chunks: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of server-sent events, until [DONE] or the end. A line is ended by a line feed: JSON has none inside."""
    rest = ""
    for chunk in chunks:
        # Only the new part can hold an end, so that one long line is looked at once.
        *lines, last = chunk.split("\n")
        if lines:
            lines[0], rest = rest + lines[0], last
        else:
            rest += last
        if len(rest) > MAX_LINE:
            raise RequestError("the server sends an event without an end", status_code=500)
        for line in lines:
            if not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                return
            try:
                event = json.loads(data)
            except ValueError as error:
                raise RequestError(f"the server sends what is no event: {data[:200]!r}", status_code=500) from error
            if isinstance(event, dict):
                yield event


def _refusal(answer: httpx.Response) -> RequestError:
    try:
        return _error(answer.json(), answer.status_code)
    except ValueError:
        return RequestError(
            f"the server answers {answer.status_code} {answer.reason_phrase}", status_code=answer.status_code
        )


def _error(body: Any, status: int) -> RequestError:
    error = body.get("error") if isinstance(body, dict) else None
    words = error.get("message") if isinstance(error, dict) else error
    return RequestError(str(words or f"the server answers {status}")[:2000], status_code=status)
