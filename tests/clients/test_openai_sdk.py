"""The official SDK, unmodified, against a server started as a user would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.server import Server

PROMPT = "The capital of France is"
QUESTION = "Name three colours."


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="anything", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="anything", max_retries=0) as sdk:
        yield sdk


def test_models_are_listed_and_retrieved(client: OpenAI, model_name: str) -> None:
    assert [model.id for model in client.models.list()] == [model_name]
    assert client.models.retrieve(model_name).id == model_name


def test_a_chat(client: OpenAI, model_name: str) -> None:
    answer = client.chat.completions.create(
        model=model_name,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
        max_completion_tokens=12,
        temperature=0,
    )
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens is not None


def test_an_answer_can_be_sent_back_as_history(client: OpenAI, model_name: str) -> None:
    first = client.chat.completions.create(
        model=model_name, messages=[{"role": "user", "content": QUESTION}], max_tokens=8, temperature=0
    )
    message = first.choices[0].message
    second = client.chat.completions.create(
        model=model_name,
        messages=[
            {"role": "user", "content": QUESTION},
            message.model_dump(),  # type: ignore[list-item]
            {"role": "user", "content": "Why?"},
        ],
        max_tokens=8,
    )
    assert second.choices


def test_a_streamed_chat_is_the_same_as_a_whole_one(client: OpenAI, model_name: str) -> None:
    arguments = {"model": model_name, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    whole = client.chat.completions.create(**arguments, max_tokens=12)
    text, usage, finish = "", None, None
    for chunk in client.chat.completions.create(
        **arguments, max_tokens=12, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].message.content
    assert finish == whole.choices[0].finish_reason
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_the_streaming_helper_understands_the_stream(client: OpenAI, model_name: str) -> None:
    with client.chat.completions.stream(
        model=model_name,
        messages=[{"role": "user", "content": "Say only the word yes."}],
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(pieces) == final.choices[0].message.content
    assert final.choices[0].logprobs is not None
    assert final.choices[0].logprobs.content


def test_several_choices(client: OpenAI, model_name: str) -> None:
    answer = client.chat.completions.create(
        model=model_name,
        messages=[{"role": "user", "content": QUESTION}],
        n=3,
        max_tokens=8,
        seed=1,
        temperature=1.5,
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_what_openai_does_not_know_goes_in_the_extra_body(client: OpenAI, model_name: str) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    guided = client.chat.completions.create(
        model=model_name,
        messages=messages,  # type: ignore[arg-type]
        temperature=0,
        extra_body={"structured_outputs": {"choice": ["Rome", "Paris"]}, "return_token_ids": True},
    )
    assert guided.choices[0].message.content == "Paris"
    assert guided.choices[0].model_extra is not None
    assert guided.choices[0].model_extra["token_ids"]
    searched = client.chat.completions.create(
        model=model_name,
        messages=messages,  # type: ignore[arg-type]
        n=2,
        max_tokens=6,
        extra_body={"use_beam_search": True, "early_stopping": True},
    )
    assert len({choice.message.content for choice in searched.choices}) == 2


def test_a_prompt_is_echoed_and_scored(client: OpenAI, model_name: str) -> None:
    answer = client.completions.create(
        model=model_name,
        prompt=PROMPT,
        echo=True,
        logprobs=1,
        max_tokens=0,
        extra_body={"prompt_logprobs": 1},
    )
    [choice] = answer.choices
    assert choice.text == PROMPT
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert "".join(choice.logprobs.tokens) == PROMPT
    assert choice.model_extra is not None
    assert len(choice.model_extra["prompt_logprobs"]) == len(choice.logprobs.tokens)


def test_the_best_of_several_completions(client: OpenAI, model_name: str) -> None:
    answer = client.completions.create(
        model=model_name, prompt=PROMPT, n=1, best_of=3, max_tokens=4, seed=1, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    with pytest.raises(openai.BadRequestError, match="best_of must be n with stream"):
        client.completions.create(model=model_name, prompt=PROMPT, best_of=3, stream=True)


def test_logprobs_of_a_chat(client: OpenAI, model_name: str) -> None:
    answer = client.chat.completions.create(
        model=model_name,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=6,
        temperature=0,
        logprobs=True,
        top_logprobs=5,
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 6
    assert all(len(entry.top_logprobs) == 5 for entry in logprobs.content)


def test_a_stop_string(client: OpenAI, model_name: str) -> None:
    answer = client.completions.create(
        model=model_name, prompt=PROMPT, max_tokens=16, temperature=0, stop=[" Paris"]
    )
    assert answer.choices[0].finish_reason == "stop"
    assert "Paris" not in answer.choices[0].text


def test_completions_of_text_ids_and_lists(client: OpenAI, model_name: str) -> None:
    one = client.completions.create(model=model_name, prompt=PROMPT, max_tokens=6, temperature=0)
    two = client.completions.create(model=model_name, prompt=[PROMPT, PROMPT], max_tokens=6, temperature=0)
    assert [choice.text for choice in two.choices] == [one.choices[0].text] * 2
    ids = client.completions.create(model=model_name, prompt=[504, 3575], max_tokens=2, logprobs=1)
    assert ids.choices[0].logprobs is not None
    assert (
        client.completions.create(model=model_name, prompt=[[504], [3575, 282]], max_tokens=2)
        .choices[1]
        .index
        == 1
    )


def test_a_streamed_completion(client: OpenAI, model_name: str) -> None:
    whole = client.completions.create(model=model_name, prompt=PROMPT, max_tokens=8, temperature=0)
    stream = client.completions.create(
        model=model_name, prompt=PROMPT, max_tokens=8, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_vllms_extra_fields_pass_through(client: OpenAI, model_name: str) -> None:
    answer = client.completions.create(
        model=model_name,
        prompt=PROMPT,
        max_tokens=4,
        extra_body={"top_k": 1, "min_p": 0.1, "ignore_eos": True, "repetition_penalty": 1.1, "priority": 3},
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


def test_a_bad_value_raises_bad_request(client: OpenAI, model_name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=model_name, messages=[{"role": "user", "content": "x"}], temperature=9
        )
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"


def test_tools_are_refused_by_name(client: OpenAI, model_name: str) -> None:
    with pytest.raises(openai.BadRequestError, match="tools is not supported"):
        client.chat.completions.create(
            model=model_name,
            messages=[{"role": "user", "content": "x"}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
        )


def test_a_prompt_that_is_too_long_has_its_code(client: OpenAI, model_name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model_name, prompt=[1] * 9000)
    assert caught.value.code == "context_length_exceeded"


def test_an_unknown_model_raises_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "model_not_found"


def test_an_endpoint_that_is_not_there_raises_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(input="y")


def test_a_chat_model_asked_for_embeddings_says_how_to_get_them(client: OpenAI, model_name: str) -> None:
    with pytest.raises(openai.BadRequestError, match="--pooling"):
        client.embeddings.create(model=model_name, input="y")


def test_the_raw_response_has_the_request_id(client: OpenAI, model_name: str) -> None:
    raw = client.completions.with_raw_response.create(
        model=model_name, prompt=PROMPT, max_tokens=1, extra_headers={"X-Request-Id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.parse()._request_id == "mine-1"


async def test_async_chat_whole_and_streamed(async_client: AsyncOpenAI, model_name: str) -> None:
    arguments = {"model": model_name, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    whole = await async_client.chat.completions.create(**arguments, max_tokens=8)
    text = ""
    async for chunk in await async_client.chat.completions.create(**arguments, max_tokens=8, stream=True):
        text += chunk.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content


async def test_async_errors(async_client: AsyncOpenAI, model_name: str) -> None:
    with pytest.raises(openai.BadRequestError):
        await async_client.completions.create(model=model_name, prompt="")
