"""`Engine`: the offline API. It refuses, generates and streams; it decides nothing."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, overload

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import server_args_from_kwargs
from jackfield.config.layer import DEFAULT
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints import engine_chat, engine_pooling
from jackfield.entrypoints.answer_stream import AnswerStream, AsyncAnswerStream
from jackfield.entrypoints.calls import (
    MAX_FLUSH_SECONDS,
    Answer,
    Mover,
    final_answer,
    news,
    submit_async,
    wait,
    wait_async,
)
from jackfield.entrypoints.crank import Crank
from jackfield.entrypoints.driver import Driver
from jackfield.entrypoints.inline import InlineRuntime
from jackfield.entrypoints.launcher import launch
from jackfield.entrypoints.server_info import policy_info, server_info
from jackfield.hookspecs import CLASSIFICATION, EMBEDDING, Exposition
from jackfield.hookspecs.chat import ChatRequest
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.pooled_request import PooledRequest
from jackfield.managers.text.tokenizer import Tokenizer

Prompt = str | Sequence[str]
InputIds = Sequence[int] | Sequence[Sequence[int]]
Sampling = Mapping[str, Any] | Sequence[Mapping[str, Any]]

OFFLINE_PROMPTS = 2**31 - 1
"""Prompts of one call where nothing else was said: --max-prompts-per-request protects a server from its clients, and who calls an
engine is its operator."""


class Engine:
    """A model behind a stack of plugins.

    Keyword arguments are the fields of `ServerArgs`; the environment (`JACKFIELD_*`) and a stack file (`stack=...`) count
    as they do on the command line. Raises ConfigurationError if any of it cannot be had as asked.

        with Engine() as engine:
            print(engine.generate("Once upon a time", {"max_new_tokens": 20})["text"])

    Any number of threads and coroutines may use one engine; their requests share one continuous batch.
    """

    def __init__(self, **server_args: Any) -> None:
        args, provenance = server_args_from_kwargs(server_args, os.environ)
        self._start(args, provenance)

    @classmethod
    def from_server_args(cls, args: ServerArgs, provenance: Mapping[str, str] | None = None) -> Engine:
        """An engine for arguments that were already read; provenance: field -> where its value came from."""
        engine = cls.__new__(cls)
        engine._start(args, provenance)
        return engine

    def _start(self, args: ServerArgs, provenance: Mapping[str, str] | None) -> None:
        said = (
            args.model_fields_set
            if provenance is None
            else {k for k, source in provenance.items() if source != DEFAULT}
        )
        if "max_prompts_per_request" not in said:
            args = args.model_copy(update={"max_prompts_per_request": OFFLINE_PROMPTS})
        self._runtime = launch(args, provenance)
        self._mover: Mover = Crank(self._runtime) if isinstance(self._runtime, InlineRuntime) else Driver(self._runtime)
        # An engine that nobody shuts down must not leave processes behind.
        atexit.register(self._mover.stop)

    @property
    def server_args(self) -> ServerArgs:
        """The arguments as resolved."""
        return self._runtime.args

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None with `skip_tokenizer_init`."""
        return self._runtime.tokenizer_manager.tokenizer

    @property
    def model_name(self) -> str:
        """`--served-model-name`, or the model's own."""
        return self._runtime.model_name

    @property
    def vocab_size(self) -> int:
        """Valid token ids are 0 .. vocab_size - 1."""
        return self._runtime.tokenizer_manager.limits.vocab_size

    @overload
    def generate(
        self,
        prompt: Prompt | None = ...,
        sampling_params: Sampling | None = ...,
        *,
        input_ids: InputIds | None = ...,
        stream: Literal[False] = ...,
        rid: str | Sequence[str] | None = ...,
        cache_salt: str | Sequence[str | None] | None = ...,
        extra_key: str | Sequence[str | None] | None = ...,
        priority: int | Sequence[int | None] | None = ...,
        tenant: str | Sequence[str | None] | None = ...,
        deadline_s: float | Sequence[float | None] | None = ...,
        session_params: Mapping[str, Any] | None = ...,
        return_logprob: bool | Sequence[bool | None] | None = ...,
        logprob_start_len: int | Sequence[int | None] | None = ...,
        top_logprobs_num: int | Sequence[int | None] | None = ...,
        token_ids_logprob: Sequence[int] | Sequence[Sequence[int] | None] | None = ...,
        return_text_in_logprobs: bool | None = ...,
        return_prompt_token_ids: bool | None = ...,
    ) -> Any: ...

    @overload
    def generate(
        self,
        prompt: Prompt | None = ...,
        sampling_params: Sampling | None = ...,
        *,
        input_ids: InputIds | None = ...,
        stream: Literal[True],
        rid: str | Sequence[str] | None = ...,
        cache_salt: str | Sequence[str | None] | None = ...,
        extra_key: str | Sequence[str | None] | None = ...,
        priority: int | Sequence[int | None] | None = ...,
        tenant: str | Sequence[str | None] | None = ...,
        deadline_s: float | Sequence[float | None] | None = ...,
        session_params: Mapping[str, Any] | None = ...,
        return_logprob: bool | Sequence[bool | None] | None = ...,
        logprob_start_len: int | Sequence[int | None] | None = ...,
        top_logprobs_num: int | Sequence[int | None] | None = ...,
        token_ids_logprob: Sequence[int] | Sequence[Sequence[int] | None] | None = ...,
        return_text_in_logprobs: bool | None = ...,
        return_prompt_token_ids: bool | None = ...,
    ) -> AnswerStream[Answer]: ...

    def generate(
        self,
        prompt: Prompt | None = None,
        sampling_params: Sampling | None = None,
        *,
        input_ids: InputIds | None = None,
        stream: bool = False,
        rid: str | Sequence[str] | None = None,
        cache_salt: str | Sequence[str | None] | None = None,
        extra_key: str | Sequence[str | None] | None = None,
        priority: int | Sequence[int | None] | None = None,
        tenant: str | Sequence[str | None] | None = None,
        deadline_s: float | Sequence[float | None] | None = None,
        session_params: Mapping[str, Any] | None = None,
        return_logprob: bool | Sequence[bool | None] | None = None,
        logprob_start_len: int | Sequence[int | None] | None = None,
        top_logprobs_num: int | Sequence[int | None] | None = None,
        token_ids_logprob: Sequence[int] | Sequence[Sequence[int] | None] | None = None,
        return_text_in_logprobs: bool | None = None,
        return_prompt_token_ids: bool | None = None,
    ) -> Any:
        """Complete one prompt, or a batch of them.

        prompt            text or a list of texts; or
        input_ids         token ids or a list of id lists
        sampling_params   a mapping, or one a prompt; the fields are SGLang's. With `n` above 1 the answer is a list of n for
                          each prompt, prompt by prompt
        stream            yield answers as they grow; text and ids are cumulative, and with a batch each has "index"
        cache_salt        a secret text, or one a prompt: cached prefixes are shared only with requests of the same salt
        extra_key         the same with a text that is no secret
        priority, tenant, deadline_s   what schedule policies may look at, or one a prompt: an int32, higher is more
                          urgent; on whose account, a text; seconds from arrival, which order and end nothing
        session_params    go on with a session: {"id", "rid", "offset", "replace", "drop_previous_output"}, see `open_session`
        return_logprob    give, in `meta_info`, the log-probability of each output token, of the model's raw logits; with
                          `logprob_start_len` those of the prompt after that position too, with `top_logprobs_num` the
                          likeliest tokens, with `token_ids_logprob` those ids, each as [value, id, text or None]
        return_prompt_token_ids   give the prompt's ids too, as `prompt_token_ids` of the complete answer

        Returns one answer {text, output_ids, meta_info} or, for a list, the answers in its order. Raises RequestError
        naming the field for what cannot be done, and for a request that the scheduler refused or that failed.
        """
        request = GenerateRequest(
            prompt=prompt,
            input_ids=input_ids,
            sampling_params=sampling_params,
            stream=stream,
            rid=rid,
            cache_salt=cache_salt,
            extra_key=extra_key,
            priority=priority,
            tenant=tenant,
            deadline_s=deadline_s,
            session_params=session_params,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            token_ids_logprob=token_ids_logprob,
            return_text_in_logprobs=return_text_in_logprobs,
            return_prompt_token_ids=return_prompt_token_ids,
        )
        call = self._mover.submit(request)
        if stream:
            return AnswerStream(call, partial(news, batched=request.is_batch))
        wait(call)
        answers = [final_answer(state) for state in call.states]
        return answers if request.is_batch else answers[0]

    def encode(
        self,
        prompt: Prompt | None = None,
        *,
        input_ids: InputIds | None = None,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
        **fields: Any,
    ) -> Any:
        """The embedding of a text, or of each of a list, by a model that gives embeddings.

        dimensions              entries of the vector, where the model's may be cut
        truncate_prompt_tokens  keep so many tokens of a longer prompt; -1: as many as the model takes. None: it is refused
        fields                  rid, cache_salt, priority, tenant, deadline_s as of `generate`

        Returns {embedding, meta_info} or, for a list, such answers in its order. Raises RequestError.
        """
        request = PooledRequest(
            kind=EMBEDDING,
            prompt=prompt,
            input_ids=input_ids,
            dimensions=dimensions,
            truncate=truncate_prompt_tokens,
            **fields,
        )
        answers = engine_pooling.encode(self._runtime, self._mover, request)
        return answers if request.is_batch else answers[0]

    def classify(
        self,
        prompt: Prompt | None = None,
        *,
        input_ids: InputIds | None = None,
        truncate_prompt_tokens: int | None = None,
        **fields: Any,
    ) -> Any:
        """The scores of a classification model's labels for a text, or for each of a list. Arguments as of `encode`.

        Returns {embedding, probs, label, meta_info}: `embedding` are the logits, as SGLang calls them; `probs` their scores.
        """
        request = PooledRequest(
            kind=CLASSIFICATION, prompt=prompt, input_ids=input_ids, truncate=truncate_prompt_tokens, **fields
        )
        answers = engine_pooling.classify(self._runtime, self._mover, request)
        return answers if request.is_batch else answers[0]

    def score(
        self,
        query: str | Sequence[int],
        items: str | Sequence[str] | Sequence[Sequence[int]],
        label_token_ids: Sequence[int] | None = None,
        *,
        apply_softmax: bool = False,
        item_first: bool = False,
        truncate_prompt_tokens: int | None = None,
        **fields: Any,
    ) -> Any:
        """How well each item goes with the query.

        A model that generates: for each item the probabilities with which it goes on with each of `label_token_ids` behind
        query and item (`item_first`: item and query), `apply_softmax`: among these alone. Returns a list for each item.

        A cross-encoder, or an embedding model (the cosine): query and items are texts; returns a number for each.

        Raises RequestError.
        """
        return engine_pooling.score(
            self._runtime,
            self._mover,
            query,
            items,
            label_token_ids,
            apply_softmax=apply_softmax,
            item_first=item_first,
            truncate=truncate_prompt_tokens,
            **fields,
        )

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        top_n: int | None = None,
        *,
        truncate_prompt_tokens: int | None = None,
        **fields: Any,
    ) -> list[dict[str, Any]]:
        """The documents by how well they answer the query, best first, by a cross-encoder or an embedding model.

        Returns {index, document, relevance_score} of each, or of the best `top_n`. Raises RequestError.
        """
        return engine_pooling.rerank(
            self._runtime, self._mover, query, documents, top_n, truncate=truncate_prompt_tokens, **fields
        )

    async def async_generate(
        self,
        prompt: Prompt | None = None,
        sampling_params: Sampling | None = None,
        *,
        input_ids: InputIds | None = None,
        stream: bool = False,
        rid: str | Sequence[str] | None = None,
        cache_salt: str | Sequence[str | None] | None = None,
        extra_key: str | Sequence[str | None] | None = None,
        priority: int | Sequence[int | None] | None = None,
        tenant: str | Sequence[str | None] | None = None,
        deadline_s: float | Sequence[float | None] | None = None,
        session_params: Mapping[str, Any] | None = None,
        return_logprob: bool | Sequence[bool | None] | None = None,
        logprob_start_len: int | Sequence[int | None] | None = None,
        top_logprobs_num: int | Sequence[int | None] | None = None,
        token_ids_logprob: Sequence[int] | Sequence[Sequence[int] | None] | None = None,
        return_text_in_logprobs: bool | None = None,
        return_prompt_token_ids: bool | None = None,
    ) -> Any:
        """As `generate`, for a running event loop, which is never blocked: `await` gives the answer, or with `stream` an
        async iterator of growing answers."""
        request = GenerateRequest(
            prompt=prompt,
            input_ids=input_ids,
            sampling_params=sampling_params,
            stream=stream,
            rid=rid,
            cache_salt=cache_salt,
            extra_key=extra_key,
            priority=priority,
            tenant=tenant,
            deadline_s=deadline_s,
            session_params=session_params,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            token_ids_logprob=token_ids_logprob,
            return_text_in_logprobs=return_text_in_logprobs,
            return_prompt_token_ids=return_prompt_token_ids,
        )
        call = await submit_async(self._mover, request)
        if stream:
            return AsyncAnswerStream(call, partial(news, batched=request.is_batch))
        await wait_async(call)
        answers = [final_answer(state) for state in call.states]
        return answers if request.is_batch else answers[0]

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: Mapping[str, Any] | None = None,
        *,
        stream: bool = False,
        rid: str | None = None,
        **fields: Any,
    ) -> Any:
        """The model's answer to a conversation, through its own chat template; tools, formats and reasoning as over HTTP.

        messages         of OpenAI's shape: [{"role", "content", ...}]
        sampling_params  as for `generate`; without max_new_tokens as many tokens as fit
        stream           give the answer's events as they come (`jackfield.hookspecs.ChatEvent`), and its `usage()`
        rid              the id for `abort` and `why`
        fields           further ones of `jackfield.hookspecs.ChatRequest`: tools, tool_choice, response_format, reasoning, ...

        Returns a ChatAnswer {choices, usage, text}, or a ChatStream. Raises RequestError naming the field.
        """
        request = ChatRequest(messages=messages, sampling=sampling_params or {}, stream=stream, **fields)
        return engine_chat.chat(self._runtime, self._mover, request, rid)

    async def async_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: Mapping[str, Any] | None = None,
        *,
        stream: bool = False,
        rid: str | None = None,
        **fields: Any,
    ) -> Any:
        """As `chat`, for a running event loop, which is never blocked."""
        request = ChatRequest(messages=messages, sampling=sampling_params or {}, stream=stream, **fields)
        return await engine_chat.async_chat(self._runtime, self._mover, request, rid)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **template_kwargs: Any) -> list[int]:
        """Messages -> the ids of the model's own chat template, with the assistant's turn opened.

        template_kwargs   variables of the template, such as `enable_thinking`

        Raises RequestError if the model has no template or it does not take these messages.
        """
        return self._runtime.template_manager.encode(messages, template_kwargs=template_kwargs)

    def open_session(
        self,
        capacity_of_str_len: int | None = None,
        *,
        max_tokens: int | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """The id of a new session: a tree of turns whose tokens the engine keeps.

        A request with `session_params={"id": ...}` goes on from the latest turn, or from the one of the given "rid". Its
        context is that turn's prompt and answer, then the request's own ids.

        max_tokens   most tokens of all turns; capacity_of_str_len: SGLang's name for such a bound. The smaller counts
        timeout      seconds without a turn until the session is forgotten

        Raises RequestError.
        """
        return self._runtime.tokenizer_manager.sessions.open(
            session_id=session_id, max_tokens=max_tokens, capacity_of_str_len=capacity_of_str_len, timeout=timeout
        )

    def close_session(self, session_id: str) -> bool:
        """Forget a session. False: a turn is running, and it goes at its end. Raises RequestError for an unknown id."""
        return self._runtime.tokenizer_manager.sessions.close(session_id)

    def abort(self, rid: str | None = None, *, abort_all: bool = False, message: str | None = None) -> int:
        """Ask for the end of the requests with this id (all choices of one with `n`), or of all. From any thread.

        Whoever waits for them gets what there is, with finish reason "abort" and `message`. Returns how many were open;
        0 for an unknown id. Raises ValueError unless exactly one of `rid` and `abort_all` is given.
        """
        if (rid is None) == (not abort_all):
            raise ValueError("give exactly one of rid and abort_all=True")
        count = self._runtime.tokenizer_manager.abort_where(
            lambda manager: list(manager.rid_to_state.values()) if rid is None else manager.labelled(rid), message
        )
        self._runtime.wake()
        return count

    def flush_cache(self, timeout: float = 0.0) -> None:
        """Forget all cached prefixes. While requests are open it waits for their end, at most `timeout` seconds, and then
        raises RuntimeError with the reason; so does a second call while one waits. ValueError for a time that is none."""
        if not 0 <= timeout <= MAX_FLUSH_SECONDS:
            raise ValueError(f"timeout is {timeout}; it must be from 0 to {MAX_FLUSH_SECONDS:g} seconds")
        reply = self._mover.control(lambda manager: manager.control.flush_cache(timeout))
        if not reply.ok:
            raise RuntimeError(reply.message)

    def swap_schedule_policy(self, name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Put another schedule policy in the place of the one that runs, between two steps; no request is drained or lost.

        options   all of the new policy's options; those of the start are not carried over

        Returns {changed, name, options, stack_hash, stack_epoch, ...} of the policy that runs after this swap; `changed` is
        false if it ran before, with the same options. Raises ConfigurationError with the reason if it cannot be had; then the
        old one goes on.
        """
        reply = self._mover.control(lambda manager: manager.control.swap_policy(name, options or {}))
        if not reply.ok:
            raise ConfigurationError(reply.message)
        return {"changed": reply.detail["changed"], **policy_info(self._runtime.stacks, reply.detail["epoch"])}

    def get_server_info(self) -> dict[str, Any]:
        """Arguments, the stack with its hash and reasons, and the scheduler's and the KV pool's numbers."""
        if isinstance(self._runtime, InlineRuntime) and self._runtime.failure is not None:
            # Nobody answers any more, but what is left can be read.
            return server_info(self._runtime, self._runtime.scheduler.state().as_data())
        return server_info(self._runtime, self._mover.control(lambda manager: manager.control.request_state()).data)

    def why(self, rid: str) -> dict[str, Any]:
        """What became of the request with this id, and why: the answer's `meta_info["id"]`, or the `rid` that was given.

        Returns {requests, ring, ended_kept}: a life for each request known under the id (none: it is not known, or ended
        too long ago), and how far back the record goes. `jackfield.managers.story.story` puts it into words.
        """
        if isinstance(self._runtime, InlineRuntime) and self._runtime.failure is not None:
            return self._runtime.scheduler.why(rid)
        return self._mover.control(lambda manager: manager.control.why(rid)).detail

    def expose_metrics(self, accept: str = "") -> Exposition | None:
        """What a scrape would get from the first sink that answers one, in a format of `accept` (as in HTTP); None: no sink
        does. With metrics=["prometheus"], `.body` is Prometheus' text."""
        return self._runtime.monitor.expose(accept)

    def shutdown(self) -> None:
        """End open requests and free the model. A second call does nothing."""
        self._mover.stop()
        atexit.unregister(self._mover.stop)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
