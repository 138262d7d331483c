"""From a chat, as any protocol asks it, to a request that the runtime takes, and to the readers of its answers.

Template, tools, formats and reasoning meet here; what each of them is stands in a module of its own. Hands nothing over and
waits for nothing. It renders and tokenizes, so it runs on a thread.

Policies
  reasoning   a grammar begins behind the reasoning where the prompt leaves it open, else with the first token: then the answer
              keeps to it in full, and has no reasoning
  calls       "auto" needs a parser of the model's format; required calls do without one, as a plain JSON list. A tool that is
              `strict`, and required calls, need a grammar
  format      `response_format` binds the answer's text. Beside tools that the model may call or not, the answer is calls or such
              a text; beside required calls, whose answer has no text, it binds nothing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs.chat import ChatRequest, TextRequest
from jackfield.hookspecs.grammar import GRAMMAR_FORMS, GrammarSpec
from jackfield.hookspecs.parser import ReasoningParser, ToolCallParser
from jackfield.managers.chat.call_grammar import Streams, calls_or_answer, possible_calls, required_calls
from jackfield.managers.chat.choice_reader import ChoiceReader
from jackfield.managers.chat.history import message_fields
from jackfield.managers.chat.response_format import response_grammar
from jackfield.managers.chat.template_kwargs import checked_kwargs
from jackfield.managers.chat.tools import ToolUse, tool_use
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.grammar import Grammars
from jackfield.managers.fields.limits import RequestLimits
from jackfield.managers.fields.schema_size import check_schema
from jackfield.managers.requests.capacity import check_capacity
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.limits import ReplicaLimits
from jackfield.managers.template_manager import Prompt, TemplateManager

GRAMMAR_AFTER = "grammar_after"
"""The sampling parameter with the ids behind which a grammar begins."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How answers are read.

    reader          makes the reader of the choice with this number
    reasoning_end   the text that ends the reasoning; None: there is none to count
    scored          log-probabilities were asked for
    """

    reader: Callable[[int], ChoiceReader] = ChoiceReader
    reasoning_end: str | None = None
    scored: bool = False


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """names: the runtime's name of a field -> the client's; those of the request, and of what was made of its fields"""

    request: GenerateRequest
    reading: Reading
    names: Mapping[str, str] = field(default_factory=dict)


class ChatPipeline:
    """Of one replica; any thread may use it.

    grammars               what can be kept to; None: nothing
    reasoning, tool_calls  None: no such parser was chosen
    """

    def __init__(
        self,
        *,
        templates: TemplateManager,
        limits: ReplicaLimits,
        args: ServerArgs,
        grammars: Grammars | None = None,
        reasoning: ReasoningParser | None = None,
        tool_calls: ToolCallParser | None = None,
    ) -> None:
        self._templates = templates
        self._limits = limits
        self._args = args
        self._grammars = grammars or Grammars()
        self._reasoning = reasoning
        self._tool_calls = tool_calls

    def chat(self, request: ChatRequest, *, rid: str | None = None, call_id: str | None = None) -> Prepared:
        """Raises RequestError naming the field."""
        use = self._tool_use(request)
        prompt = self._prompt(request, use)
        opened = self._reasoning is not None and self._reasoning.opened(prompt.end)
        streams, grammar, field_name = self._answer(request, use)
        sampling = dict(request.sampling)
        names = {"input_ids": "messages", **request.names}
        if grammar is not None:
            self._one_grammar(sampling, field_name)
            sampling[grammar.form] = grammar.source
            names[grammar.form] = request.names.get(field_name, field_name)
        if opened and self._reasoning is not None and any(sampling.get(form) is not None for form in GRAMMAR_FORMS):
            sampling[GRAMMAR_AFTER] = self._templates.ids_of(self._reasoning.end)
        if self._keeps_marks(use, streams):
            sampling["skip_special_tokens"] = False
        if sampling.get("max_new_tokens") is None:
            sampling["max_new_tokens"] = self._room(len(prompt.ids))
        return Prepared(
            request=self._request(request, sampling, input_ids=prompt.ids, rid=rid, call_id=call_id),
            reading=self._reading(request, use, streams, opened),
            names=names,
        )

    def text(self, request: TextRequest, *, rid: str | None = None, call_id: str | None = None) -> Prepared:
        """Raises RequestError naming the field."""
        given: dict[str, Any] = (
            {"prompt": request.prompt} if isinstance(request.prompt, str) else {"input_ids": list(request.prompt)}
        )
        return Prepared(
            request=self._request(request, dict(request.sampling), rid=rid, call_id=call_id, **given),
            reading=Reading(scored=request.logprobs is not None),
            names={"input_ids": "prompt", **request.names},
        )

    def prompt_ids(self, request: ChatRequest, *, add_generation_prompt: bool = True) -> list[int]:
        """The prompt that a chat would send, or without the header of the answer's turn. Raises RequestError."""
        return self._prompt(request, self._tool_use(request), add_generation_prompt).ids

    def _tool_use(self, request: ChatRequest) -> ToolUse:
        limits = RequestLimits.of(self._args)
        if request.tools:
            check_schema("tools", request.tools, limits)
        return tool_use(request.tools, request.tool_choice, parallel=request.parallel_tool_calls, most=limits.max_tools)

    def _prompt(self, request: ChatRequest, use: ToolUse, add_generation_prompt: bool = True) -> Prompt:
        fields = message_fields(_mappings(request.messages))
        messages = [
            {**more, "role": _role(message), "content": message.get("content")}
            for message, more in zip(request.messages, fields, strict=True)
        ]
        return self._templates.prompt(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=request.continue_final_message,
            tools=use.shown or None,
            template_kwargs=self._template_kwargs(request),
        )

    def _template_kwargs(self, request: ChatRequest) -> dict[str, Any]:
        """What the request's own fields say goes before what it sets by name only where it does not set the name."""
        kwargs: dict[str, Any] = {}
        effort, reasoning = request.reasoning_effort, request.reasoning
        if effort is not None:
            if not isinstance(effort, str) or not effort.isascii() or not effort.isalpha() or len(effort) > 16:
                raise RequestError(
                    "reasoning_effort must be a word such as low, medium or high", param="reasoning_effort"
                )
            if effort != "none":
                kwargs["reasoning_effort"] = effort
            elif reasoning is None:
                reasoning = False
        if reasoning is not None and self._reasoning is not None:
            kwargs |= dict.fromkeys(self._reasoning.template_switch, reasoning)
        return {**kwargs, **checked_kwargs(request.template_kwargs, self._args)}

    def _answer(self, request: ChatRequest, use: ToolUse) -> tuple[Streams | None, GrammarSpec | None, str]:
        """How calls are read, the grammar of the answer, and the field that asked for it."""
        if request.response_format is not None:
            check_schema("response_format", request.response_format, RequestLimits.of(self._args))
        wanted = response_grammar(request.response_format)
        if not use.callable:
            return None, wanted, "response_format"
        if use.required:
            return *required_calls(use, self._tool_calls, self._grammars), "tools"
        if wanted is not None:
            return *calls_or_answer(use, self._tool_calls, self._grammars, wanted), "response_format"
        return *possible_calls(use, self._tool_calls, self._grammars), "tools"

    def _one_grammar(self, sampling: Mapping[str, Any], field_name: str) -> None:
        for form in GRAMMAR_FORMS:
            if sampling.get(form) is not None:
                raise RequestError(f"{form} and {field_name} both bind the answer: send one of them", param=form)

    def _keeps_marks(self, use: ToolUse, streams: Streams | None) -> bool:
        """Whether a parser looks for special tokens in the text."""
        reads_calls = streams is not None and self._tool_calls is not None and self._tool_calls.keeps_special_tokens
        return reads_calls or (self._reasoning is not None and self._reasoning.keeps_special_tokens)

    def _room(self, prompt_tokens: int) -> int:
        """As many tokens as fit behind the prompt. Raises CapacityError."""
        return check_capacity(
            prompt_tokens,
            self._limits.context_length,
            context_length=self._limits.context_length,
            total_slots=self._limits.total_slots,
            page_size=self._limits.page_size,
        )

    def _reading(self, request: ChatRequest, use: ToolUse, streams: Streams | None, opened: bool) -> Reading:
        parser = self._reasoning
        # An answer that goes on with a message goes on with its content.
        reasons = parser if not request.continue_final_message or opened else None

        def reader(index: int) -> ChoiceReader:
            return ChoiceReader(
                index,
                reasoning=None if reasons is None else reasons.stream(opened=opened),
                calls=None if streams is None else streams(),
                separate=request.separate_reasoning,
                stream_reasoning=request.stream_reasoning,
                parallel=use.parallel,
            )

        return Reading(
            reader=reader,
            reasoning_end=None if reasons is None else reasons.end,
            scored=request.logprobs is not None,
        )

    def _request(
        self, request: ChatRequest | TextRequest, sampling: dict[str, Any], *, rid: Any, call_id: Any, **prompt: Any
    ) -> GenerateRequest:
        wanted = request.logprobs
        scored: dict[str, Any] = {} if wanted is None else {"return_logprob": True, "top_logprobs_num": wanted}
        return GenerateRequest(
            **prompt,
            sampling_params=sampling,
            stream=request.stream,
            rid=rid,
            call_id=call_id,
            cache_salt=request.cache_salt,
            priority=request.priority,
            tenant=request.tenant,
            deadline_s=request.deadline_s,
            **scored,
        )


def _role(message: Mapping[str, Any]) -> Any:
    role = message.get("role")
    return "system" if role == "developer" else role


def _mappings(messages: Any) -> Any:
    """Raises RequestError unless it is a list of objects; what is in them is checked elsewhere."""
    if not isinstance(messages, list | tuple):
        raise RequestError("messages must be a list of messages", param="messages")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise RequestError(f"messages[{i}] must be an object with role and content", param=f"messages[{i}]")
    return messages
