"""JSON body to checked struct in one pass; whatever is wrong becomes a sentence that names the field."""

from __future__ import annotations

import re
from typing import Final, NoReturn, TypeVar

import msgspec

from penstock.errors import InvalidRequestError

T = TypeVar("T")

_KINDS: Final = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}

# Values of the discriminating fields, for the sentence that refuses another one.
_ALLOWED: Final = {
    "messages[].role": "system, developer, user, assistant or tool",
    "messages[].content[].type": "text",
    "messages[].tool_calls[].type": "function",
    "truncation_side": "left or right",
    "early_stopping": "true, false or 'never'",
}

_AT: Final = re.compile(r"(?P<what>.*) - at (?:`key` in )?`\$\.?(?P<path>.*)`", re.DOTALL)
_EXPECTED: Final = re.compile(r"Expected `(?P<kinds>[^`]+)`(?:, got `(?P<got>[^`]+)`)?$")
_LIMIT: Final = re.compile(
    r"Expected `(?P<kind>[^`]+)`(?P<length> of length)? (?P<op>>=|<=|<|>|==) (?P<limit>\S+)$"
)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_INVALID: Final = re.compile(r"Invalid (?:enum )?value (?P<value>.*)$", re.DOTALL)
_RANGE: Final = re.compile(r"(?:Number|Integer value) out of range$")
_INDEX: Final = re.compile(r"\[\d+\]")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_COMPARISONS: Final = {">=": "at least", "<=": "at most", ">": "above", "<": "below", "==": "exactly"}


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode and check `body`, or raise InvalidRequestError with a sentence and the field's path."""
    if not body.strip():
        raise InvalidRequestError("The body is empty; send a JSON object.")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        _explain(str(error))
    except msgspec.DecodeError as error:
        if _SURROGATE.search(body):
            raise InvalidRequestError(
                "The body is not valid JSON: it has a \\u escape for half of a surrogate pair, "
                "which is not a character."
            ) from None
        detail = str(error).removeprefix("JSON is malformed: ").lower()
        raise InvalidRequestError(f"The body is not valid JSON: {detail}.") from None
    except UnicodeDecodeError:
        raise InvalidRequestError("The body is not valid UTF-8; JSON must be sent as UTF-8.") from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.") from None


def shown(value: object, limit: int = 64) -> str:
    """A client's value, safe and short enough to be quoted in a sentence."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _explain(message: str) -> NoReturn:
    located = _AT.match(message)
    what, path = (located["what"], located["path"]) if located else (message, "")
    path = path.removesuffix("[...]")
    name = path or "The body"

    if found := _MISSING.match(what):
        field = _join(path, found["name"])
        raise InvalidRequestError(f"{field} is required.", param=field)
    if found := _UNKNOWN.match(what):
        field = _join(path, found["name"][:128])
        raise InvalidRequestError(
            f"Unknown field {shown(field)}: it is not part of this API, see /openapi.json for the fields.",
            param=field,
            code="unknown_parameter",
        )
    if found := _LIMIT.match(what):
        subject = f"The length of {name}" if found["length"] else name
        raise InvalidRequestError(
            f"{subject} must be {_COMPARISONS[found['op']]} {found['limit']}.", param=path or None
        )
    if found := _EXPECTED.match(what):
        expected = _words(found["kinds"])
        got = f", got {_words(found['got'])}" if found["got"] else ""
        raise InvalidRequestError(f"{name} must be {expected}{got}.", param=path or None)
    if found := _INVALID.match(what):
        allowed = _ALLOWED.get(_INDEX.sub("[]", path))
        must = f"must be {allowed}, got" if allowed else "does not take the value"
        raise InvalidRequestError(f"{name} {must} {found['value'][:64]}.", param=path or None)
    if _RANGE.match(what):
        raise InvalidRequestError(f"{name} is out of range.", param=path or None)
    raise InvalidRequestError(f"{name}: {what[:1].lower()}{what[1:]}.", param=path or None)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _words(kinds: str) -> str:
    # null is how an optional field says "absent": telling people to send it would only confuse.
    names = [_KINDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null" or kinds == "null"]
    return " or ".join(names)
