"""Chat templates: from messages to the prompt the model was trained on."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, TemplateSyntaxError

from penstock.errors import InvalidRequestError, ModelError
from penstock.text.filters import TemplateRefusalError
from penstock.text.limits import TemplateLimitError
from penstock.text.marking import ControlText, unused_characters
from penstock.text.sandbox import compile_template

if TYPE_CHECKING:
    from penstock.text.tokenizer import Tokenizer

# What a client's chat_template_kwargs may not replace.
RESERVED_KWARGS = frozenset({
    "add_generation_prompt", "bos_token", "chat_template", "continue_final_message", "conversation", "cycler",
    "dict", "documents", "eos_token", "joiner", "max_length", "messages", "namespace", "pad_token", "padding",
    "raise_exception", "range", "return_dict", "return_tensors", "self", "strftime_now", "tokenize",
    "tokenizer", "tokenizer_kwargs", "tools", "truncation", "unk_token",
})  # fmt: skip
MAX_DEPTH = 16  # of the arguments of a tool call
# A template that loops over a message's content wants its parts; the others want one string.
_LOOPS_OVER_CONTENT = re.compile(r"\bfor\s+\w+\s+in\s+[\w.\[\]'\"]*content\b['\"\]]*\s*(?:-?%}|if\b)")


class ChatTemplate:
    """One model's template. Text in messages and arguments never becomes a control token."""

    def __init__(self, source: str | None, tokenizer: Tokenizer) -> None:
        self.source = source
        self._tokenizer = tokenizer
        self._control = ControlText(tokenizer.special_tokens)
        self._wants_parts = source is not None and _LOOPS_OVER_CONTENT.search(source) is not None
        try:
            self._render = compile_template(source) if source is not None else None
        except TemplateSyntaxError as error:
            raise ModelError(
                f"The chat template has an error in line {error.lineno}: {str(error.message).rstrip('.')}."
            ) from None
        except (TemplateError, RecursionError) as error:
            raise ModelError(f"The chat template cannot be used: {str(error).rstrip('.')}.") from None

    def encode(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: dict[str, Any] | None = None,
    ) -> list[int]:
        """The prompt as token ids."""
        if self._render is None:
            raise InvalidRequestError(
                "This model has no chat template, so it cannot chat; give it one with --chat-template, or "
                "let it complete text instead."
            )
        extra = _checked_kwargs(kwargs)
        if continue_final_message and add_generation_prompt:
            raise InvalidRequestError(
                "continue_final_message and add_generation_prompt exclude each other; turn one off.",
                param="continue_final_message",
            )
        prepared = [
            _prepared(message, self._wants_parts, f"messages[{number}]")
            for number, message in enumerate(messages)
        ]
        mark, end_mark = unused_characters(2, [prepared, extra, self.source])
        marked = self._control.marked(prepared, mark)
        if continue_final_message:
            _append_to_final(marked, end_mark)
        text = self._rendered(
            **self._tokenizer.named_tokens,
            documents=None,
            **self._control.marked(extra, mark),
            messages=marked,
            tools=None,
            add_generation_prompt=add_generation_prompt,
        )
        if continue_final_message:
            text, found, _ = text.rpartition(end_mark)
            if not found:
                raise InvalidRequestError(
                    "The chat template leaves out the final message, so it cannot be continued.",
                    param="continue_final_message",
                )
            text = text.replace(end_mark, "")  # templates may show a message more than once
        return self._tokenizer.encode_marked(text, mark)

    def _rendered(self, **variables: Any) -> str:
        assert self._render is not None
        try:
            return self._render(**variables)
        except TemplateRefusalError as error:
            reason = str(error).strip() or "The chat template rejects these messages."
            raise InvalidRequestError(reason, param="messages") from None
        except TemplateLimitError as error:
            raise InvalidRequestError(
                f"The chat template was stopped because {str(error).rstrip('.')}.", param="messages"
            ) from None
        except RecursionError:
            raise InvalidRequestError(
                "The chat template was stopped because it calls itself too deeply.", param="messages"
            ) from None
        except Exception as error:  # a template is somebody else's program; it can fail in any way
            reason = str(error).rstrip(".") or type(error).__name__
            raise InvalidRequestError(
                f"The chat template cannot render these messages: {reason}.", param="messages"
            ) from None


def _checked_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    for name in kwargs or ():
        if name in RESERVED_KWARGS:
            raise InvalidRequestError(
                f"chat_template_kwargs may not set {name!r}.", param="chat_template_kwargs"
            )
        if not name.isidentifier():
            raise InvalidRequestError(
                f"chat_template_kwargs has the name {name[:60]!r}, which no template can read.",
                param="chat_template_kwargs",
            )
    return dict(kwargs or {})


def _prepared(message: dict[str, Any], wants_parts: bool, where: str) -> dict[str, Any]:
    """A message in the form templates are written for; the client's is left as it is."""
    message = dict(message)
    content = message.get("content")
    if content is None:
        message["content"] = ""
    elif isinstance(content, list):
        texts = [_part_text(part) for part in content]
        if not wants_parts:
            message["content"] = "\n".join(texts)
    if message.get("tool_calls"):
        message["tool_calls"] = [
            _parsed_call(call, f"{where}.tool_calls[{number}].function.arguments")
            for number, call in enumerate(message["tool_calls"])
        ]
    return message


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise InvalidRequestError(
            f"A message has a part of type {kind!r}, and this model takes text only.", param="messages"
        )
    return text


def _parsed_call(call: dict[str, Any], where: str) -> dict[str, Any]:
    """Clients send a call's arguments as JSON text; templates write them out as an object."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(
            function["arguments"] or "{}", parse_int=_integer, parse_float=_number, parse_constant=_number
        )
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or not _within(arguments, MAX_DEPTH):
        raise InvalidRequestError(
            f"{where} must be the text of a JSON object of at most {MAX_DEPTH} levels and of numbers of at "
            f"most 64 bits, got {function['arguments'][:60]!r}.",
            param=where,
        )
    return {**call, "function": {**function, "arguments": arguments}}


def _integer(digits: str) -> int:
    value = int(digits)
    if not -(2**63) <= value < 2**64:
        raise ValueError
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError
    return value


def _within(value: Any, levels: int) -> bool:
    """Whether containers nest at most so deep: what works on them, works recursively."""
    if not isinstance(value, dict | list):
        return True
    children = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_within(child, levels - 1) for child in children)


def _append_to_final(messages: list[dict[str, Any]], mark: str) -> None:
    """Put the mark behind the last message's text; the prompt ends where it comes out."""
    content = messages[-1]["content"] if messages else None
    if isinstance(content, str):
        messages[-1]["content"] = content + mark
    elif isinstance(content, list) and content and isinstance(content[-1], dict):
        content[-1]["text"] += mark
    else:
        raise InvalidRequestError(
            "continue_final_message needs a final message that ends with text.",
            param="continue_final_message",
        )
