"""Messages for servers that turn out to know chats only."""

from __future__ import annotations

import pytest

from penstock.gateway.backends import abilities
from tests.gateway.cache.front import front
from tests.gateway.cache.test_serving import memory
from tests.gateway.upstream.conftest import pytest_asyncio_loop_factories
from tests.servers.gated import OpenAIServer

__all__ = ["pytest_asyncio_loop_factories"]

HI = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


async def test_what_a_request_has_learned_holds_for_it_though_the_server_is_believed_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(abilities, "LACKS_SECONDS", 0.0)  # as if it had just come back
    async with front(memory(), kind="openai_compatible", upstream=OpenAIServer("good")) as door:
        answer = await door.ask({"model": "m", **HI}, path="/v1/messages")
        assert answer.status == 200, answer.body
        assert answer.json()["content"] == [{"type": "text", "text": "good good good "}]
        asked = [request.path for request in door.server.requests if request.method == "POST"]
        assert asked == ["/v1/messages", "/v1/chat/completions"]
