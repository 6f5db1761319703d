"""How many tokens a request's prompt can have at most, whoever counts them. Pure.

A token has a byte, or more, so that no prompt has more tokens than its body has bytes: all of the body, for
which of its fields a server puts into a prompt is its own affair. What is not text is counted apart.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.gateway.inquiry import MEDIA, PROMPTS, Inquiry

# What a chat template adds beside what the request's own braces and quotes make up for: such as a message of
# the system's where there is none.
TEMPLATE_TOKENS: Final = 64
IMAGE_TOKENS: Final = 2048  # of one image, unless its tier says otherwise; most models stay below
# Sound, film and documents: of those that a body only points to, nobody here knows the length.
OTHER_TOKENS: Final = 65_536
_IMAGES: Final = frozenset({"image_url", "input_image", "image"})


def most_prompt_tokens(inquiry: Inquiry, image_tokens: int = IMAGE_TOKENS) -> int:
    tokens = inquiry.size + TEMPLATE_TOKENS
    if not inquiry.has_media:
        return tokens
    said = inquiry.decoded()
    return tokens + _media([said.get(name) for name in PROMPTS[inquiry.operation]], image_tokens)


def _media(prompt: Any, image_tokens: int) -> int:
    """Tokens of what is no text, less the bytes of images that came with the body."""
    tokens, rest = 0, [prompt]
    while rest:  # and no recursion: how deep it goes is the client's to say
        value = rest.pop()
        if isinstance(value, list):
            rest += value
        elif isinstance(value, dict) and value.get("type") != "tool_use":  # whose arguments are text
            rest += value.values()
            tokens += _part(value, image_tokens)
    return tokens


def _part(value: dict[str, Any], image_tokens: int) -> int:
    said = value.get("type")
    kinds = {name for name in (*value, said) if isinstance(name, str) and name in MEDIA}
    if not kinds:
        return 0
    # A film may be a list of its frames.
    frames = max([1, *(len(value[name]) for name in kinds if isinstance(value.get(name), list))])
    return frames * (image_tokens if kinds <= _IMAGES else OTHER_TOKENS) - _inline(value)


def _inline(part: dict[str, Any]) -> int:
    """Bytes of an image in the body itself, which a model is not shown as text. Only where a server must read
    them as one: what merely looks like an image may be text to it."""
    said = part.get("type")
    if said in ("image_url", "input_image"):
        given = part.get("image_url")
        url = given.get("url") if isinstance(given, dict) else given
        return len(url) if isinstance(url, str) and url.startswith("data:image/") else 0
    source = part.get("source") if said == "image" else None
    if isinstance(source, dict) and source.get("type") == "base64" and isinstance(source.get("data"), str):
        return len(source["data"])
    return 0
