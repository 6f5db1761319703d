"""How a tier's instruction gets into requests of every kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.gateway.inquiry import Inquiry
from penstock.gateway.routing.tier import instructed

CHAT = "createChatCompletion"
USER = {"role": "user", "content": "hi"}


def changed(operation: str, body: dict[str, Any]) -> dict[str, Any]:
    return dict(instructed(Inquiry(operation, json.dumps(body).encode()), "Think."))


def test_a_chat_without_rules_gets_a_message_of_the_systems() -> None:
    assert changed(CHAT, {"messages": [USER]}) == {
        "messages": [{"role": "system", "content": "Think."}, USER]
    }


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_chat_with_rules_keeps_one_message_with_both(role: str) -> None:
    given = {"role": role, "content": "Be brief.", "name": "boss"}
    [first, last] = changed(CHAT, {"messages": [given, USER]})["messages"]
    assert first == {"role": role, "content": "Think.\n\nBe brief.", "name": "boss"}
    assert last == USER


def test_rules_in_parts_get_one_more_part() -> None:
    given = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    [first, _] = changed(CHAT, {"messages": [given, USER]})["messages"]
    assert [part["text"] for part in first["content"]] == ["Think.", "Be brief."]


def test_prompts_of_completions_begin_with_it_and_token_ids_do_not() -> None:
    assert changed("createCompletion", {"prompt": "a"}) == {"prompt": "Think.\n\na"}
    assert changed("createCompletion", {"prompt": ["a", "b"]}) == {"prompt": ["Think.\n\na", "Think.\n\nb"]}
    assert changed("createCompletion", {"prompt": [1, 2]}) == {}


def test_responses_and_messages_have_a_place_of_their_own_for_it() -> None:
    assert changed("createResponse", {"input": "a"}) == {"instructions": "Think."}
    assert changed("createResponse", {"instructions": "B.", "input": "a"}) == {"instructions": "Think.\n\nB."}
    assert changed("createMessage", {"messages": [USER]}) == {"system": "Think."}
    assert changed("createMessage", {"system": "B.", "messages": [USER]}) == {"system": "Think.\n\nB."}
    blocks = [{"type": "text", "text": "B."}]
    assert changed("createMessage", {"system": blocks, "messages": [USER]}) == {
        "system": [{"type": "text", "text": "Think."}, *blocks]
    }


@pytest.mark.parametrize("messages", [None, "hi", 3, {"role": "user"}])
def test_a_malformed_chat_stays_as_it_is(messages: Any) -> None:
    assert changed(CHAT, {"messages": messages}) == {}
