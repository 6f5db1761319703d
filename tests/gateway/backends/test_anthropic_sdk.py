"""Anthropic's own SDK, unmodified, against `penstock serve`: models of Anthropic's, of Triton's and ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.server import Server
from tests.servers.anthropic import KEY, MODEL, AnthropicServer
from tests.servers.http import in_a_thread
from tests.servers.triton import TritonServer

CONFIG = """
models:
  claude:
    price: {{input: 3, output: 15}}
    backends:
      - anthropic: {anthropic}
        model: {model}
        api_key: {key}
        vision: true
  triton:
    tokenizer: default
    backends:
      - triton: {triton}
        model: vllm_model
        options: {{metrics_url: "{triton}/metrics"}}
  local:
    price: {{input: 1, output: 2}}
    backends:
      - engine: default
"""
QUESTION: list[Any] = [{"role": "user", "content": "one two three"}]
TOOL: Any = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def provider() -> Iterator[AnthropicServer]:
    with in_a_thread(AnthropicServer()) as server:
        yield server


@pytest.fixture(scope="module")
def client(provider: AnthropicServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anthropic]:
    folder = tmp_path_factory.mktemp("messages")
    with in_a_thread(TritonServer()) as triton:
        config = folder / "penstock.yaml"
        config.write_text(
            CONFIG.format(anthropic=provider.url, triton=triton.url, model=MODEL, key=KEY), encoding="utf-8"
        )
        server = Server(f"--config={config}", log=folder / "server.log")
        try:
            with Anthropic(base_url=server.url, api_key="anything", max_retries=0) as sdk:
                yield sdk
        finally:
            server.stop()


@pytest.mark.parametrize("model", ["claude", "local", "triton"])
def test_a_message_is_the_same_whole_and_streamed(client: Anthropic, model: str) -> None:
    arguments: Any = {"model": model, "max_tokens": 12, "messages": QUESTION, "system": "Be brief."}
    if model == "local":
        arguments["extra_body"] = {"temperature": 0}
    whole = client.messages.create(**arguments)
    with client.messages.stream(**arguments) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert whole.model == final.model == model
    assert [block.type for block in whole.content] == ["text"]
    assert whole.content[0].text == final.content[0].text == text != ""  # type: ignore[union-attr]
    assert whole.stop_reason == final.stop_reason
    assert whole.usage.output_tokens == final.usage.output_tokens > 0
    assert final.usage.input_tokens > 0
    assert (whole.usage.model_extra or {})["latency_ms"] > 0


def test_tools_are_used_and_their_results_go_back(client: Anthropic, provider: AnthropicServer) -> None:
    with client.messages.stream(
        model="claude", max_tokens=50, messages=[{"role": "user", "content": "call me"}], tools=[TOOL]
    ) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use"
    use = message.content[-1]
    assert use.type == "tool_use"
    assert use.input == {"words": ["call", "me"]}
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "done"}
    client.messages.create(
        model="claude",
        max_tokens=50,
        messages=[
            {"role": "user", "content": "call me"},
            message.to_param(),
            {"role": "user", "content": [result]},
        ],
        tools=[TOOL],
    )
    assert provider.sent["messages"][-1]["content"] == [result]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"model": "nobody"}, anthropic.NotFoundError),
        ({"model": "local", "tools": [TOOL]}, anthropic.BadRequestError),
        ({"model": "local", "extra_body": {"mcp_servers": [{"type": "url"}]}}, anthropic.BadRequestError),
        ({"model": "claude", "messages": "x"}, anthropic.BadRequestError),
    ],
)
def test_errors_are_those_that_the_sdk_knows(client: Anthropic, arguments: Any, kind: Any) -> None:
    with pytest.raises(kind) as caught:
        client.messages.create(**{"max_tokens": 5, "messages": QUESTION, **arguments})
    body = caught.value.body
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert body["request_id"]


def test_a_provider_that_fails_is_told_as_sdks_expect(client: Anthropic, provider: AnthropicServer) -> None:
    provider.faults.append("rate_limited")
    with pytest.raises(anthropic.RateLimitError) as caught:
        client.messages.create(model="claude", max_tokens=5, messages=QUESTION)
    assert caught.value.response.headers["retry-after"] == "7"
    provider.faults.append("error_event")
    with (
        pytest.raises(anthropic.APIStatusError, match="overloaded"),
        client.messages.stream(model="claude", max_tokens=5, messages=QUESTION) as stream,
    ):
        stream.get_final_message()
