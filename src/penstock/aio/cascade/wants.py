"""What a request demands of its answer's form, read from the few fields of its body that say so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# The only fields that are looked at: a prompt of any length costs nothing here.
FIELDS: Final = (
    "response_format",
    "text",
    "tools",
    "tool_choice",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
)
_MUST_CALL: Final = frozenset({"required", "any"})
# What cannot be done in two words.
_LONG: Final = re.compile(
    r"\b(?:write|explain|describe|compose|draft|summari[sz]e|discuss|outline|elaborate|compare|implement"
    r"|step[- ]by[- ]step|essay|story|poem|article|schreibe?|erkläre?|beschreibe?|écri[st]|explique[rz]?"
    r"|décri[st]|escrib[ae]|explica|descri[bv]e?|scrivi|spiega|escreva|explique)\b"
    r"|写|解释|描述|説明|書いて|напиши|объясни|опиши",
    re.IGNORECASE,
)
_BRIEF: Final = re.compile(
    r"\b(?:only|just|one[- ]word|single|briefly|short(?:ly)?|concise|yes or no|true or false|nur|seulement"
    r"|solo|sólo|apenas)\b|只|だけ|только",
    re.IGNORECASE,
)
_REPEAT: Final = re.compile(
    r"\b(?:repeat|times|wiederhol\w*|répète\w*|repit\w*)\b|重复|繰り返|повтор", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Tool:
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wants:
    ask: str = ""  # what the user asks
    json: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)  # of the answer's JSON; empty: any object
    tools: Mapping[str, Tool] = field(default_factory=dict)  # by name
    must_call: bool = False
    max_tokens: int | None = None  # the client's own limit

    @property
    def long(self) -> bool:
        """Whether the question plainly asks for more than a word or two."""
        return bool(_LONG.search(self.ask)) and not _BRIEF.search(self.ask)

    @property
    def repetition(self) -> bool:
        """Whether the question itself may want something said again and again."""
        return bool(_REPEAT.search(self.ask))


def wants_of(ask: str, fields: Mapping[str, Any]) -> Wants:
    """From what the user asks, and the decoded values of FIELDS that the body has. Never raises."""
    given = _mapping(fields.get("response_format")) or _mapping(_mapping(fields.get("text")).get("format"))
    kind = given.get("type")
    # Chat completions put the schema one level deeper than Responses do.
    schema = _mapping(_mapping(given.get("json_schema")).get("schema")) or _mapping(given.get("schema"))
    limits = [fields.get(name) for name in FIELDS if name.startswith("max_")]
    choice = fields.get("tool_choice")
    named = _mapping(choice).get("type")
    tools = _tools(fields.get("tools"))
    return Wants(
        ask=ask,
        json=kind in ("json_object", "json_schema"),
        schema=schema if kind == "json_schema" else {},
        tools=tools,
        must_call=bool(tools) and (choice in _MUST_CALL if isinstance(choice, str) else named not in _FREE),
        max_tokens=max((limit for limit in limits if isinstance(limit, int)), default=None),
    )


_FREE: Final = (None, "auto", "none")


def _tools(given: Any) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for tool in given if isinstance(given, list) else []:
        function = _mapping(_mapping(tool).get("function")) or _mapping(tool)
        parameters = _mapping(function.get("parameters")) or _mapping(function.get("input_schema"))
        if isinstance(name := function.get("name"), str):
            found[name] = Tool(names(parameters.get("required")))
    return found


def names(value: Any) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
