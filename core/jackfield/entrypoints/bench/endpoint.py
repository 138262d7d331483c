"""What is asked of a server beside what is measured: its model, what it is made of, and texts for token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.apis import error_text
from jackfield.entrypoints.bench.document import stack_facts

SECONDS = 60.0
PASSES = 3
"""Tries to make a text of as many tokens as are wanted; what it has then is what the server counts."""

TEXT_NAMES = ("text", "prompt", "content")
"""What servers call the text that their /detokenize gives: Jackfield and SGLang, vLLM, llama-server."""


class Endpoint:
    """A server at `base_url`. Raises ConfigurationError where it does not answer, or has not what is needed."""

    def __init__(self, base_url: str, key: str | None) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}
        try:
            if httpx.URL(self.base_url).scheme not in ("http", "https"):
                raise httpx.InvalidURL("it has no http:// or https://")
            self._http = httpx.Client(base_url=self.base_url, headers=self.headers, timeout=SECONDS, trust_env=False)
        except httpx.InvalidURL as error:
            raise ConfigurationError(
                f"bench: --base-url {base_url!r} is no address such as http://127.0.0.1:30000: {error}"
            ) from error

    def first_model(self) -> str:
        """The id of the first model that it offers."""
        answer = self._send("GET", "/v1/models")
        if answer.status_code != 200:
            raise ConfigurationError(
                f"bench: {self.base_url}/v1/models answers {answer.status_code} ({_message(answer)}); name the model by "
                "--model-name, or look at --base-url and --api-key"
            )
        try:
            return str(answer.json()["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ConfigurationError(
                f"bench: {self.base_url}/v1/models names no model; name one by --model-name"
            ) from error

    def facts(self) -> dict[str, Any]:
        """server: what it calls itself; stack and args, of a server that tells them."""
        answer = self._send("GET", "/server_info")
        told: dict[str, Any] = {"server": self._name(answer.headers.get("server", "")), "stack": None, "args": None}
        try:
            info = answer.json() if answer.status_code == 200 else {}
            told |= {
                "server": f"jackfield {info['version']}",
                "stack": stack_facts(info["stack"]),
                "args": info["args"],
            }
        except (ValueError, KeyError, TypeError):
            pass  # another server, whose /server_info, if it has one, tells other things
        return told

    def _name(self, header: str) -> str:
        """The owner of its models, as servers call themselves there, with their version if they have a route for it."""
        said = []
        for path, *keys in (("/v1/models", "data", 0, "owned_by"), ("/version", "version")):
            try:
                told = self._send("GET", str(path)).json()
                for key in keys:
                    told = told[key]
            except (ValueError, KeyError, IndexError, TypeError):
                continue  # it does not say
            said.append(str(told))
        return " ".join(said) or header

    def flush_cache(self) -> None:
        """Empty its prefix cache, where it has SGLang's route for it."""
        answer = self._send("POST", "/flush_cache")
        if answer.status_code != 200:
            raise ConfigurationError(
                f"bench: {self.base_url}/flush_cache answers {answer.status_code} ({_message(answer)}); leave --flush-cache "
                "out, or look at --api-key"
            )

    def texts(self, prompts: Sequence[Sequence[int]], model: str) -> list[str]:
        """A text for each, of as many tokens as the server's tokenizer makes possible."""
        return [self._text(ids, model) for ids in prompts]

    def close(self) -> None:
        self._http.close()

    def _text(self, ids: Sequence[int], model: str) -> str:
        wanted, text = len(ids), ""
        for _ in range(PASSES):
            text = self._detokenized(ids, model)
            ids = self._tokenized(text, model)
            if len(ids) <= wanted:
                break
            ids = ids[:wanted]
        return text

    def _detokenized(self, ids: Sequence[int], model: str) -> str:
        told = self._tokenizer("/detokenize", {"model": model, "tokens": list(ids)})
        text: str | None = next((told[name] for name in TEXT_NAMES if isinstance(told.get(name), str)), None)
        if text is None:
            raise self._no_texts(f"/detokenize tells none of {', '.join(TEXT_NAMES)}")
        return text

    def _tokenized(self, text: str, model: str) -> list[int]:
        body = {"model": model, "prompt": text, "content": text, "add_special_tokens": False}
        ids = self._tokenizer("/tokenize", body).get("tokens")
        if not isinstance(ids, list):
            raise self._no_texts("/tokenize tells no tokens")
        return ids

    def _tokenizer(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._send("POST", path, body)
        try:
            told = answer.json()
        except ValueError:
            told = None
        if answer.status_code != 200 or not isinstance(told, dict):
            raise self._no_texts(f"{path} answers {answer.status_code} ({_message(answer)})")
        return told

    def _no_texts(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"bench: {self.base_url} makes no texts of token ids: {why}. Send token ids (--send ids, which --api "
            "openai-completions takes), or give texts by --dataset FILE"
        )

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            return self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ConfigurationError(f"bench: no server answers at {self.base_url}: {error}") from error


def _message(answer: httpx.Response) -> str:
    try:
        return error_text(answer.json())
    except ValueError:
        return answer.text[:200]
