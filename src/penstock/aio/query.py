"""What a request asks, told apart from the text around it.

A prompt is often mostly harness: a role to play, examples, documents, listings, tool output. The question is
what makes a request hard, so it is found first and everything else is kept beside it as context. Bodies come
from clients and may be malformed in any way: nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.protocol.estimate import BYTES_PER_TOKEN

ASK_CHARS = 4000  # what is asked is read up to here, however long the prompt is
CONTEXT_CHARS = 6000
SYSTEM_CHARS = 2000
FENCE_CHARS = 800  # of a listing inside the question
_HEAD, _TAIL = 6000, 10_000  # characters of one turn that are looked at


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked, and the shape of the request around it. Texts are bounded, counts are of the whole."""

    ask: str
    context: str = ""
    system: str = ""
    turns: int = 1  # messages of users
    tools: int = 0
    schema: bool = False  # the answer must be JSON
    media: bool = False
    prompt_tokens: int = 0  # estimated


def query_of_text(text: str) -> Query:
    """A query that is one text, such as a completion's prompt or a line of a log."""
    ask, context, system = _told_apart(text)
    return Query(
        ask, context[:CONTEXT_CHARS], system[:SYSTEM_CHARS], prompt_tokens=-(-len(text) // BYTES_PER_TOKEN)
    )


def query_of(operation: str, body: Mapping[str, Any]) -> Query:
    """The query of a decoded body of `createChatCompletion`, `createCompletion`, `createResponse` or
    `createMessage`; of anything else an empty one."""
    reader = _READERS.get(operation)
    if reader is None:
        return Query("")
    turns, system = reader(body)
    users = [turn for turn in turns if turn.role == "user" and turn.text.strip()]
    last = users[-1].text if users else ""
    ask, around, harness = _told_apart(last)
    before = [turn.text[-1500:] for turn in turns if not (users and turn is users[-1])]
    context = "\n".join(reversed([*before[-8:], around]))  # what is nearest to the question comes first
    characters = sum(len(turn.text) for turn in turns) + len(system)
    return Query(
        ask=ask,
        context=context.strip()[:CONTEXT_CHARS],
        system=f"{system[:SYSTEM_CHARS]}\n{harness}".strip()[:SYSTEM_CHARS],
        turns=max(1, sum(turn.role == "user" for turn in turns)),
        tools=_count(body.get("tools")) + _count(body.get("functions")),
        schema=_wants_json(body),
        media=any(turn.media for turn in turns),
        prompt_tokens=-(-characters // BYTES_PER_TOKEN),
    )


# ---------------------------------------------------------------- bodies


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str
    text: str
    media: bool


_MEDIA = ("image", "audio", "video", "file", "document")


def _content(content: Any) -> tuple[str, bool]:
    """The text of a message's content, whatever its form, and whether there is anything but text."""
    if isinstance(content, str):
        return content, False
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return "", False
    texts, media = [], False
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping):
            kind = part.get("type")
            if isinstance(kind, str) and any(name in kind for name in _MEDIA):
                media = True
            text = part.get("text")
            if isinstance(text, str):
                texts.append(text)
    return "\n".join(texts), media


def _turn(message: Any) -> _Turn | None:
    if isinstance(message, str):
        return _Turn("user", message, False)
    if not isinstance(message, Mapping):
        return None
    kind = message.get("type")
    if kind in ("function_call_output", "function_call"):  # of the Responses API
        text, media = _content(message.get("output"))
        return _Turn("tool", text, media)
    text, media = _content(message.get("content"))
    role = message.get("role", "user")
    return _Turn(role if isinstance(role, str) else "user", text, media)


def _turns(messages: Any) -> list[_Turn]:
    if isinstance(messages, str):
        return [_Turn("user", messages, False)]
    if not isinstance(messages, list):
        return []
    return [turn for turn in map(_turn, messages) if turn is not None]


def _parted(turns: list[_Turn], system: str = "") -> tuple[list[_Turn], str]:
    rules = [system] if system else []
    rules += [turn.text for turn in turns if turn.role in ("system", "developer")]
    return [turn for turn in turns if turn.role not in ("system", "developer")], "\n".join(rules)


def _chat(body: Mapping[str, Any]) -> tuple[list[_Turn], str]:
    return _parted(_turns(body.get("messages")))


def _completion(body: Mapping[str, Any]) -> tuple[list[_Turn], str]:
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        texts = [item for item in prompt if isinstance(item, str)]
        if texts:
            return [_Turn("user", texts[0], False)], ""
        ids = len(prompt[0]) if prompt and isinstance(prompt[0], list) else len(prompt)
        return [
            _Turn("ids", " " * (BYTES_PER_TOKEN * ids), False)
        ], ""  # token ids: only their count is known
    return [_Turn("user", prompt, False)] if isinstance(prompt, str) else [], ""


def _responses(body: Mapping[str, Any]) -> tuple[list[_Turn], str]:
    system, _ = _content(body.get("instructions"))
    return _parted(_turns(body.get("input")), system)


def _messages(body: Mapping[str, Any]) -> tuple[list[_Turn], str]:
    system, _ = _content(body.get("system"))
    return _parted(_turns(body.get("messages")), system)


_READERS = {
    "createChatCompletion": _chat,
    "createCompletion": _completion,
    "createResponse": _responses,
    "createMessage": _messages,
}


def _count(items: Any) -> int:
    return len(items) if isinstance(items, list) else 0


def _wants_json(body: Mapping[str, Any]) -> bool:
    text = body.get("text")
    forms = (
        body.get("response_format"),
        text.get("format") if isinstance(text, Mapping) else None,
        body.get("output_format"),
    )
    return any(isinstance(form, Mapping) and str(form.get("type", "")).startswith("json") for form in forms)


# ---------------------------------------------------------------- harness

# A line that opens a part of a prompt, and what that part is.
_OPENING = re.compile(
    r"^[ \t]{0,3}(?:#{1,4} ?|\*\*)?(?:"
    r"(?P<ask>user question|user query|user input|question|query|problem|task|user|human|q)"
    r"|(?P<context>context|passages?|documents?|articles?|background|sources?|references?|transcript|logs?|emails?"
    r"|retrieved [a-z]+|search results|tool output|observation|history|examples?)"
    r"|(?P<reply>assistant|final answer|answer|a|ai|response|output)"
    r")(?: ?\d{1,3})?(?:\*\*)?:(?:\*\*)?(?=\s|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION_B = re.compile(r"^[ \t]{0,3}[Bb]:\s", re.MULTILINE)
_ASK_TAGS = "question|query|user_query|user_question|task|problem|prompt"
_CONTEXT_TAGS = (
    "context|documents?|doc|passages?|sources?|files?|file_contents?|logs?|tool_result|tool_output|results?|history"
    "|examples?|background|article|transcript|email|environment_details|system-reminder|search_results|data|code"
)
_TAG = re.compile(
    rf"<(?P<end>/?)(?:(?P<ask>{_ASK_TAGS})|(?P<context>{_CONTEXT_TAGS}))(?:\s[^<>]{{0,200}})?>", re.IGNORECASE
)
_FENCE = re.compile(r"```[^\n]{0,40}\n(.*?)(?:```|\Z)", re.DOTALL)
# A role, or an exam's opening line, before the question.
_ROLE = re.compile(
    r"\A\s*((?:you are (?:an? |the |my |now |chat|gpt|claude|acting|playing|[A-Z])|act as "
    r"|your (?:role|task|job) is |the following (?:are|is) (?:a )?multiple[- ]choice)[^\n]{0,2000})"
    r"\n+(?=\s*\S)",
    re.IGNORECASE,
)
# How the answer should be written says nothing about how hard it is.
_FORMAT = re.compile(
    r"(?:\s*(?:after careful thought, |please )?(?:put|write|give|place) your? final answer "
    r"(?:in|within|as) [^\n]{0,60}"
    r"|\s*let'?s think step by step\.?|\s*(?:please )?(?:think|reason) step by step[^\n]{0,80}"
    r"|\s*(?:the )?answer:)\s*\Z",
    re.IGNORECASE,
)


def _told_apart(text: str) -> tuple[str, str, str]:
    """The question of one turn, the material around it, and the role it opens with."""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n\n{text[-_TAIL:]}"
    system = ""
    context: list[str] = []
    if role := _ROLE.match(text):
        system, text = role.group(1), text[role.end() :]
    if "<" in text:
        text = _untagged(text, context)
    if "```" in text:
        text = _FENCE.sub(lambda found: _listing(found, context), text)
    text = _question(text, context)
    if len(text) > ASK_CHARS:
        text = _clipped(text, context)
    text = text.strip()
    text = text[:-200] + _FORMAT.sub("", text[-200:], count=1)
    return text.strip(), "\n".join(context).strip(), system.strip()


def _untagged(text: str, context: list[str]) -> str:
    """What stands in the last tag of a question, or else outside all tags of material. One pass."""
    opened: dict[str, re.Match[str]] = {}
    asked: re.Match[str] | None = None
    question, outside, end = "", [], 0
    for tag in _TAG.finditer(text):
        name = tag.group(tag.lastgroup or 0).lower()
        if not tag.group("end"):
            opened.setdefault(name, tag)
        elif opening := opened.pop(name, None):
            if tag.lastgroup == "ask":
                asked, question = opening, text[opening.end() : tag.start()]
            elif opening.start() >= end:
                outside.append(text[end : opening.start()])
                context.append(text[opening.end() : tag.start()])
                end = tag.end()
    outside.append(text[end:])
    rest = "\n".join(outside)
    if asked is not None and question.strip():
        context.append(text[: asked.start()])
        return question
    return rest if rest.strip() else text


def _listing(found: re.Match[str], context: list[str]) -> str:
    code = found.group(1)
    if len(code) <= FENCE_CHARS:
        return found.group(0)
    context.append(code[FENCE_CHARS:])
    return f"```\n{code[:FENCE_CHARS]}\n```"


def _question(text: str, context: list[str]) -> str:
    """What remains when parts with another name (documents, examples, earlier answers) go to `context`."""
    openings = list(_OPENING.finditer(text))
    if _OPTION_B.search(text):  # then `A:` is an option, not an answer
        openings = [found for found in openings if found.group().strip() not in ("A:", "a:")]
    if not openings:
        return text
    ends = [found.start() for found in openings[1:]] + [len(text)]
    parts = [(found.lastgroup, text[found.end() : end]) for found, end in zip(openings, ends, strict=True)]
    lead = text[: openings[0].start()]
    asked = [number for number, (kind, part) in enumerate(parts) if kind == "ask" and part.strip()]
    if asked:
        chosen = asked[-1]
        context.append(lead)
    elif lead.strip():
        chosen = -1
    else:  # nothing but material: its last paragraph is as near to a question as anything
        chosen = max((number for number, (_, part) in enumerate(parts) if part.strip()), default=-1)
    context += [part for number, (_, part) in enumerate(parts) if number != chosen]
    return lead if chosen < 0 else parts[chosen][1]


def _clipped(text: str, context: list[str]) -> str:
    """A question too long to read whole: its beginning and its end, cut between paragraphs if possible."""
    head = text[: ASK_CHARS // 4]
    head = head[:cut] if (cut := head.rfind("\n\n")) > 0 else head
    tail = text[-(ASK_CHARS * 3 // 4) :]
    tail = tail[cut:] if 0 < (cut := tail.find("\n\n")) < len(tail) // 2 else tail
    context.append(text[len(head) : len(text) - len(tail)])
    return f"{head}\n\n{tail}"
