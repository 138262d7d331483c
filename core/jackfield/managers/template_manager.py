"""Chat messages to the prompt text that the model was trained on, with the model's own template.

Knows templates; the shape of messages is known to `chat_messages`, tokens to the tokenizer, and which fields a client may
send to the API. A rendered prompt has its special tokens in it: encode it with `add_special_tokens=False`.

Policy: whatever a client wrote is text, never a control token (see `encode`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes

from jackfield.config.chat_template import read_chat_template
from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs.loader import TokenizerFiles
from jackfield.managers.chat.content_format import ContentFormat, content_format
from jackfield.managers.chat.environment import chat_environment
from jackfield.managers.chat.history import for_template
from jackfield.managers.chat.literal_text import LiteralText
from jackfield.managers.chat.messages import plain_messages
from jackfield.managers.chat.template_budget import loop_budget, meter_loops
from jackfield.managers.chat.tool_texts import with_tools_in_words
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.fields.schema_size import check_schema
from jackfield.managers.text.text_length import refuse_far_too_long
from jackfield.managers.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

PROMPT_END = 512
"""Characters at the end of a rendered prompt that are kept, for those who ask what it leaves open."""

_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})
_CONTINUE_HERE = "<<<jackfield: the final message goes on here>>> "
# What Jinja itself, or a template's arithmetic over unexpected values, can raise. MemoryError and the like are not ours.
_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """ids, and the end of the text that they stand for."""

    ids: list[int]
    end: str


class TemplateManager:
    """Templates are compiled once; `render` may be called from any thread.

    files       the checkpoint's template and special tokens; None: it has none
    override    a file that takes the place of the checkpoint's default template: Jinja source, or JSON with the key
                `chat_template`. Raises ConfigurationError if it cannot be used
    tokenizer   encodes what `encode` renders; None: only `render`
    now         the date for templates that show one
    limits      the run's ceilings
    context_length   prompts that are far longer are refused by their beginning; None: none is

    A template of the checkpoint that cannot be compiled is logged, and refuses chat requests only: completions work
    without it.
    """

    def __init__(
        self,
        files: TokenizerFiles | None,
        override: Path | None = None,
        tokenizer: Tokenizer | None = None,
        *,
        now: Callable[[], datetime] = datetime.now,
        limits: RequestLimits = DEFAULT_LIMITS,
        context_length: int | None = None,
    ) -> None:
        self._environment = chat_environment(now)
        self._tokenizer = tokenizer
        self._limits = limits
        self._context_length = context_length
        self._special_tokens = dict(files.special_tokens) if files is not None else {}
        self._templates: dict[str, _Compiled] = {}
        self._problem = "the model has no chat template"
        sources = dict(files.chat_templates) if files is not None else {}
        if files is not None and files.chat_template is not None:
            sources["default"] = files.chat_template
        if override is not None:
            sources = {"default": read_chat_template(override)}
        for name, source in sources.items():
            try:
                self._templates[name] = _Compiled(self._environment, source)
            except (jinja2.TemplateError, RecursionError) as error:
                if override is not None:
                    raise ConfigurationError(f"--chat-template {override}: not a Jinja template: {error}") from error
                log.warning("the model's chat template %r cannot be used: %s", name, error)
                self._problem = f"the model's chat template cannot be used ({error})"

    @property
    def has_template(self) -> bool:
        return "default" in self._templates

    def reads(self, variable: str) -> bool:
        """Whether the default template names the variable."""
        chosen = self._templates.get("default")
        return chosen is not None and variable in chosen.variables

    def content_format(self) -> ContentFormat:
        """How the default template reads content. Raises RequestError if there is none."""
        return self._choose(tools=False).format

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt.

        add_generation_prompt    end with the header of an assistant's turn
        continue_final_message   the last message is the beginning of the answer: its turn stays open, and no header is
                                 added whatever `add_generation_prompt` says
        tools                    descriptions for the template; the one named "tool_use" is taken if there is one. One that
                                 names no tools is told of them in a system message
        template_kwargs          further variables of the template (`enable_thinking`, ...) as a client sent them: names
                                 that belong to the call are refused
        variables                the same, for callers that know the names

        Raises RequestError (400) for messages that are malformed or that the template refuses, and if there is no
        template.
        """
        return self._render(
            LiteralText(()),
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            template_kwargs=template_kwargs,
            **variables,
        )

    def _render(
        self,
        literal: LiteralText,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        **variables: Any,
    ) -> str:
        for name in template_kwargs or {}:
            if not isinstance(name, str) or name in _RESERVED:
                raise RequestError(f"chat_template_kwargs may not set {name!r}", param="chat_template_kwargs")
        if tools is not None:
            check_schema("tools", tools, self._limits)
        chosen = self._choose(tools=bool(tools))
        plain = plain_messages(messages, chosen.format, self._limits.max_messages)
        if tools and "tools" not in chosen.variables:
            plain = with_tools_in_words(
                plain, tools, parts=chosen.format.kind == "openai" and not chosen.format.takes_both
            )
        plain, given, tools = literal.hide(plain, {**(template_kwargs or {}), **variables}, list(tools or ()))
        for_template(plain)
        if continue_final_message:
            _mark(plain)
        text = self._run(
            chosen.template,
            {
                **self._special_tokens,
                **given,
                "messages": plain,
                "tools": tools or None,
                "add_generation_prompt": add_generation_prompt and not continue_final_message,
            },
        )
        return _cut_at_mark(text) if continue_final_message else text

    def encode(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """The prompt's ids; options as for `render`. See `prompt`."""
        return self.prompt(messages, **options).ids

    def prompt(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Prompt:
        """The prompt's ids and the end of its text; options as for `render`.

        The special tokens are the template's own: none is added, and the text of one in a message, a tool or a variable is
        encoded as ordinary text, so that no message can end itself and forge another's turn.
        """
        if self._tokenizer is None:
            raise RequestError("this run has no tokenizer (--skip-tokenizer-init): send input_ids", param="messages")
        literal = LiteralText(self._tokenizer.special_texts)
        text = self._render(literal, messages, **options)
        if self._context_length is not None:
            refuse_far_too_long(text, self._context_length, self._beginning, param="messages")
        ids = self._tokenizer.encode_literals(text, literal.literals, param="messages")
        return Prompt(ids=ids, end=text[-PROMPT_END:])

    def _beginning(self, text: str) -> list[int]:
        assert self._tokenizer is not None
        return self._tokenizer.encode(text, add_special_tokens=False, param="messages")

    def ids_of(self, mark: str) -> list[int]:
        """The ids of a text that a model writes, such as the end of its reasoning; the text of a special token is that token."""
        assert self._tokenizer is not None, "a prompt was encoded before"
        return self._tokenizer.encode(mark, add_special_tokens=False)

    def _choose(self, *, tools: bool) -> _Compiled:
        chosen = self._templates.get("tool_use") if tools else None
        chosen = chosen or self._templates.get("default")
        if chosen is None:
            named = f"; it has templates named {', '.join(self._templates)}" if self._templates else ""
            raise RequestError(
                f"{self._problem}{named}, so chat is not possible: send a plain prompt (completions work), "
                "or start with --chat-template FILE",
                param="messages",
            )
        return chosen

    def _run(self, template: jinja2.Template, variables: dict[str, Any]) -> str:
        parts, length = [], 0
        try:
            with loop_budget(self._limits.max_template_steps):
                for part in template.generate(variables):
                    length += len(part)
                    if length > (most := self._limits.max_template_chars):
                        raise RequestError(
                            f"messages: the chat template made more than {most} characters of them (--max-template-chars)",
                            param="messages",
                        )
                    parts.append(part)
        except _TEMPLATE_FAULTS as error:
            raise RequestError(
                f"messages: the model's chat template refuses them: {error or type(error).__name__}", param="messages"
            ) from error
        return "".join(parts)


class _Compiled:
    def __init__(self, environment: jinja2.Environment, source: str) -> None:
        tree = environment.parse(source)
        self.format = content_format(tree)
        self.variables = frozenset(node.name for node in tree.find_all(nodes.Name) if node.ctx == "load")
        meter_loops(environment, tree)
        self.template = environment.from_string(tree)


def _mark(messages: list[dict[str, Any]]) -> None:
    """Put the mark at the end of the last message's text."""
    last = messages[-1]
    if isinstance(last["content"], str):
        last["content"] += _CONTINUE_HERE
    elif last["content"]:
        last["content"][-1]["text"] += _CONTINUE_HERE
    else:
        raise RequestError(
            "continue_final_message: the last message has no content to continue", param="continue_final_message"
        )


def _cut_at_mark(text: str) -> str:
    """What stands before the mark. A template that trims content has eaten the mark's last space; then it would have
    trimmed the end of the message as well."""
    mark = _CONTINUE_HERE.strip()
    place = text.find(mark)
    if place < 0 or text.find(mark, place + 1) >= 0:
        raise RequestError(
            "continue_final_message: the model's chat template does not show the last message exactly once",
            param="continue_final_message",
        )
    before = text[:place]
    return before if text.startswith(_CONTINUE_HERE, place) else before.rstrip()
