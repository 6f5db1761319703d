"""The most tokens that a prompt can have, by which a cap on the cost reckons."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.gateway.inquiry import Inquiry
from penstock.gateway.routing.bound import IMAGE_TOKENS, OTHER_TOKENS, most_prompt_tokens


def most(*parts: Any, operation: str = "createChatCompletion", **fields: Any) -> int:
    """Tokens beside those that the bytes of the body can be."""
    body = {"messages": [{"role": "user", "content": list(parts)}], **fields}
    given = json.dumps(body).encode()
    return most_prompt_tokens(Inquiry(operation, given)) - len(given)


PLAIN = most("hi")


@pytest.mark.parametrize(
    "field",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "description": "d " * 5000}}]},
        {"guided_json": {"a": "x" * 10_000}},
        {"chat_template_kwargs": {"x": "y " * 5000}},
        {"documents": [{"text": "x " * 5000}]},
        {"a field that nobody knows": "x " * 5000},
    ],
)
def test_every_field_counts_for_nobody_knows_which_a_server_puts_into_a_prompt(field: dict[str, Any]) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], **field}).encode()
    assert most_prompt_tokens(Inquiry("createChatCompletion", body)) >= 10_000


REMOTE = {"type": "image_url", "image_url": {"url": "http://x/1.png"}}
DATA = "data:image/png;base64," + "A" * 10_000


@pytest.mark.parametrize(
    ("parts", "more"),
    [
        ([REMOTE], IMAGE_TOKENS),
        ([REMOTE] * 100, 100 * IMAGE_TOKENS),
        ([{"image_url": "http://x/1.png"}], IMAGE_TOKENS),
        ([{"type": "image_url", "image_url": {"url": DATA}}], IMAGE_TOKENS - len(DATA)),
        ([{"type": "text", "text": DATA, "image_url": "http://x/1.png"}], IMAGE_TOKENS),
        ([{"type": "video_url", "video_url": {"url": "http://x/1.mp4"}}], OTHER_TOKENS),
        ([{"type": "video", "video": ["http://x/1.png"] * 30}], 30 * OTHER_TOKENS),
        ([{"type": "text", "text": "an image_url"}], 0),
    ],
)
def test_what_is_no_text_counts_apart_from_the_bytes_that_it_came_in(parts: list[Any], more: int) -> None:
    assert most(*parts) == PLAIN + more


def test_images_of_messages_count_as_well_and_the_arguments_of_tools_do_not() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 10_000}
    image = {"type": "image", "source": source}
    call = {"type": "tool_use", "id": "1", "name": "read", "input": {"file": "a.txt"}}
    wanted = PLAIN + IMAGE_TOKENS - 10_000
    assert most(image, call, operation="createMessage", max_tokens=10) == wanted
    inside = {"type": "tool_result", "tool_use_id": "1", "content": [image]}
    assert most(inside, operation="createMessage", max_tokens=10) == wanted


def test_a_prompt_that_is_nested_deeply_can_be_counted() -> None:
    deep: Any = REMOTE
    for _ in range(300):
        deep = [deep]
    assert most(deep) == PLAIN + IMAGE_TOKENS
