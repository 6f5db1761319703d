"""Answers of a real model over the wire: whole and streamed, one and many."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server import Server

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def ask(server: Server, text: str = "Name three colours.", **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 12, **fields}
    reply = server.post(CHAT, body)
    assert reply.status == 200, reply.body
    return dict(reply.json())


def complete(server: Server, prompt: Any = "The capital of France is", **fields: Any) -> dict[str, Any]:
    reply = server.post(TEXT, {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields})
    assert reply.status == 200, reply.body
    return dict(reply.json())


def texts(answer: dict[str, Any]) -> list[str]:
    return [
        choice["message"]["content"] if "message" in choice else choice["text"]
        for choice in answer["choices"]
    ]


def streamed(server: Server, path: str, **body: Any) -> tuple[dict[int, str], dict[int, str], list[Any]]:
    """Text and finish reason of each choice, and the chunks, after checking the stream's form."""
    *chunks, done = server.stream(path, {"temperature": 0, "max_tokens": 12, **body})
    assert done == "[DONE]"
    content: dict[int, str] = {}
    finish: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            index = choice["index"]
            assert index not in finish, "a finished choice must be silent"
            piece = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            content[index] = content.get(index, "") + piece
            if choice["finish_reason"]:
                finish[index] = choice["finish_reason"]
    assert set(content) == set(finish), "every choice must finish"
    return content, finish, chunks


def test_a_chat_answer_has_openais_form(server: Server, model_name: str) -> None:
    answer = ask(server)
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == model_name
    assert answer["system_fingerprint"]
    [choice] = answer["choices"]
    assert choice["index"] == 0
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    usage = answer["usage"]
    assert usage["completion_tokens"] == 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + 12


def test_a_text_answer_has_openais_form(server: Server) -> None:
    answer = complete(server)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert "Paris" in texts(answer)[0]
    assert answer["usage"]["completion_tokens"] == 8


def test_a_completion_makes_sixteen_tokens_unless_told_otherwise(server: Server) -> None:
    answer = complete(server, max_tokens=None, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 16


def test_a_chat_goes_on_until_the_model_stops(server: Server) -> None:
    answer = ask(server, "Say only the word yes.", max_tokens=None)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "<|im_end|>" not in texts(answer)[0]


@pytest.mark.parametrize("n", [1, 3])
def test_a_streamed_chat_is_the_same_as_a_whole_one(server: Server, n: int) -> None:
    body = {"messages": [{"role": "user", "content": "Count to ten."}], "seed": 7, "temperature": 1.0, "n": n}
    whole = server.post(CHAT, {**body, "max_tokens": 12}).json()
    content, finish, chunks = streamed(server, CHAT, **body)
    assert [content[index] for index in range(n)] == texts(whole)
    assert [finish[index] for index in range(n)] == [choice["finish_reason"] for choice in whole["choices"]]
    assert all("usage" not in chunk for chunk in chunks)
    opened = set()
    for chunk in chunks:
        [choice] = chunk["choices"]
        assert ("role" in choice["delta"]) == (choice["index"] not in opened)
        opened.add(choice["index"])


def test_a_streamed_completion_is_the_same_as_a_whole_one(server: Server) -> None:
    prompts = ["The sky is", "Water is", "Fire is"]
    whole = complete(server, prompts, n=2, seed=3, temperature=0.8, max_tokens=12)
    content, _, _ = streamed(server, TEXT, prompt=prompts, n=2, seed=3, temperature=0.8)
    assert [content[index] for index in range(6)] == texts(whole)


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(server: Server) -> None:
    prompts = ["One, two, three, four,", "The capital of France is"]
    together = complete(server, prompts, n=2)
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
    alone = [texts(complete(server, prompt))[0] for prompt in prompts]
    assert texts(together) == [alone[0], alone[0], alone[1], alone[1]]
    one = complete(server, prompts[0])["usage"]["prompt_tokens"]
    two = complete(server, prompts[1])["usage"]["prompt_tokens"]
    assert together["usage"]["prompt_tokens"] == one + two
    assert together["usage"]["completion_tokens"] == 32


def test_text_and_its_token_ids_give_the_same_answer(server: Server) -> None:
    ids = server.post("/tokenize", {"prompt": "The capital of France is"}).json()["tokens"]
    expected = texts(complete(server))
    assert texts(complete(server, ids)) == expected
    assert texts(complete(server, [ids, ids])) == expected * 2


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_usage_ends_the_stream_only_if_asked_for(server: Server, path: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    _, _, chunks = streamed(server, path, **body, stream_options={"include_usage": True})
    *others, last = chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] <= 12
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)


def test_running_usage_grows_with_the_stream(server: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, _, chunks = streamed(server, TEXT, prompt="hi", ignore_eos=True, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 12


def test_a_repeated_prompt_is_taken_from_the_cache(server: Server) -> None:
    prompt = "Once upon a time, in a land far away, there was a very small engine. " * 4
    first = complete(server, prompt, cache_salt="first")["usage"]
    again = complete(server, prompt, cache_salt="first")["usage"]
    other = complete(server, prompt, cache_salt="other")["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["prompt_tokens_details"]["cached_tokens"] > first["prompt_tokens"] // 2
    assert other["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_stop_string_ends_the_text_before_it(server: Server) -> None:
    full = texts(complete(server, "One, two, three, four,", max_tokens=24))[0]
    stop = full[10:14]
    answer = complete(server, "One, two, three, four,", max_tokens=24, stop=["zzz", stop])
    [choice] = answer["choices"]
    assert choice["text"] == full[: full.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    content, finish, _ = streamed(server, TEXT, prompt="One, two, three, four,", max_tokens=24, stop=stop)
    assert (content[0], finish[0]) == (choice["text"], "stop")
    kept = complete(
        server, "One, two, three, four,", max_tokens=24, stop=stop, include_stop_str_in_output=True
    )
    assert texts(kept)[0] == choice["text"] + stop


def test_a_stopped_choice_leaves_the_others_running(server: Server) -> None:
    base = {
        "prompt": "Numbers:",
        "n": 3,
        "seed": 11,
        "temperature": 1.5,
        "max_tokens": 20,
        "ignore_eos": True,
    }
    whole = texts(server.post(TEXT, base).json())
    # A string that only one of them has.
    stop = next(
        text[at : at + 3]
        for text in whole[:1]
        for at in range(len(text) - 3)
        if all(text[at : at + 3] not in other for other in whole[1:])
    )
    stopped = server.post(TEXT, {**base, "stop": stop}).json()
    assert texts(stopped) == [whole[0][: whole[0].index(stop)], *whole[1:]]
    assert [choice["finish_reason"] for choice in stopped["choices"]] == ["stop", "length", "length"]


def test_a_stop_token_ends_the_text_and_is_named(server: Server) -> None:
    ids = server.post("/tokenize", {"prompt": texts(complete(server, "One, two, three, four,"))[0]}).json()[
        "tokens"
    ]
    answer = complete(server, "One, two, three, four,", stop_token_ids=[ids[3]])
    [choice] = answer["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ids[3])
    first = ids.index(ids[3])
    assert choice["text"] == server.post("/detokenize", {"tokens": ids[:first]}).json()["prompt"]
    assert answer["usage"]["completion_tokens"] == first + 1


def test_a_bias_forces_and_forbids_tokens(server: Server) -> None:
    [comma] = server.post("/tokenize", {"prompt": ","}).json()["tokens"]
    forced = complete(server, "Hello", logit_bias={str(comma): 100}, max_tokens=3)
    assert texts(forced) == [",,,"]
    forbidden = complete(server, "One, two, three", logit_bias={str(comma): -100}, max_tokens=12)
    assert "," not in texts(forbidden)[0]


def test_a_seed_repeats_an_answer_and_its_absence_does_not(server: Server) -> None:
    def sample(**fields: Any) -> str:
        return texts(ask(server, "Tell me a story.", temperature=1.5, max_tokens=16, **fields))[0]

    assert sample(seed=5) == sample(seed=5)
    assert sample(seed=5) != sample(seed=6)
    assert len({sample() for _ in range(4)}) > 1


def test_min_tokens_keeps_the_model_from_stopping(server: Server) -> None:
    short = ask(server, "Say only the word yes.", max_tokens=None)["usage"]["completion_tokens"]
    longer = ask(server, "Say only the word yes.", max_tokens=short + 10, min_tokens=short + 5)
    assert longer["usage"]["completion_tokens"] >= short + 5


def test_chat_logprobs_explain_the_text(server: Server) -> None:
    answer = ask(server, logprobs=True, top_logprobs=3)
    entries = answer["choices"][0]["logprobs"]["content"]
    assert len(entries) == answer["usage"]["completion_tokens"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == texts(answer)[0]
    for entry in entries:
        assert entry["logprob"] <= 0
        assert len(entry["top_logprobs"]) == 3
        # Greedy: the chosen token is the likeliest one.
        assert entry["top_logprobs"][0]["token"] == entry["token"]
        scores = [top["logprob"] for top in entry["top_logprobs"]]
        assert scores == sorted(scores, reverse=True)


def test_chat_logprobs_without_alternatives(server: Server) -> None:
    entries = ask(server, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert entries
    assert all(entry["top_logprobs"] == [] for entry in entries)


def test_streamed_logprobs_are_the_whole_ones(server: Server) -> None:
    body = {"messages": [{"role": "user", "content": "Count to ten."}], "logprobs": True, "top_logprobs": 2}
    whole = server.post(CHAT, {**body, "temperature": 0, "max_tokens": 12}).json()
    _, _, chunks = streamed(server, CHAT, **body)
    pieces = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    expected = whole["choices"][0]["logprobs"]["content"]
    assert [piece["token"] for piece in pieces] == [entry["token"] for entry in expected]


def test_completion_logprobs_have_offsets_into_the_text(server: Server) -> None:
    answer = complete(server, logprobs=2)
    logprobs = answer["choices"][0]["logprobs"]
    text = texts(answer)[0]
    assert "".join(logprobs["tokens"]) == text
    for token, offset, top in zip(
        logprobs["tokens"], logprobs["text_offset"], logprobs["top_logprobs"], strict=True
    ):
        assert text[offset:].startswith(token)
        assert token in top
        assert len(top) <= 3


def test_the_end_token_is_not_in_the_logprobs(server: Server) -> None:
    answer = ask(server, "Say only the word yes.", max_tokens=None, logprobs=True)
    entries = answer["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == texts(answer)[0]
    assert answer["usage"]["completion_tokens"] == len(entries) + 1


def test_text_is_never_broken_inside_a_character(server: Server) -> None:
    emoji = server.post("/tokenize", {"prompt": "🙂"}).json()["tokens"]
    assert len(emoji) > 1, "the test needs a character of several tokens"
    # A strong bias to each token in turn cannot be asked for; to the first one, the text is broken bytes.
    _, _, chunks = streamed(server, TEXT, prompt="hi", logit_bias={str(emoji[0]): 100}, max_tokens=4)
    text = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    assert text == "�" * len(text)
    assert text


def test_the_last_message_can_be_continued(server: Server) -> None:
    messages = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "The capital of France is"},
    ]
    answer = server.post(
        CHAT, {"messages": messages, "continue_final_message": True, "temperature": 0, "max_tokens": 4}
    ).json()
    assert "Paris" in texts(answer)[0]


def test_a_history_with_tool_calls_is_accepted(server: Server) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is f(1)?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    reply = server.post(CHAT, {"messages": messages, "max_tokens": 4})
    assert reply.status == 200, reply.body


def test_ignored_fields_and_neutral_values_change_nothing(server: Server) -> None:
    extra = {
        "user": "me", "store": True, "metadata": {"a": "b"}, "service_tier": "auto", "tools": [],
        "tool_choice": "auto", "response_format": {"type": "text"}, "parallel_tool_calls": True,
        "modalities": ["text"], "echo": False, "priority": -5, "top_k": -1, "min_p": 0, "stop": [],
    }  # fmt: skip
    assert texts(ask(server, **extra)) == texts(ask(server))


def test_every_json_number_form_is_understood(server: Server) -> None:
    body = (
        b'{"prompt": "hi", "max_tokens": 1, "temperature": 0e0, "top_p": 1E0, "seed": -9223372036854775808}'
    )
    assert server.post(TEXT, body).status == 200


def test_events_are_single_lines_of_json(server: Server) -> None:
    import http.client

    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    body = {"prompt": "Write code:\n", "stream": True, "max_tokens": 12, "temperature": 0}
    connection.request("POST", TEXT, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    assert response.headers["cache-control"] == "no-cache"
    *blocks, rest = raw.split(b"\n\n")
    assert rest == b""
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    assert blocks[-1] == b"data: [DONE]"


def test_times_and_endings_are_measured(server: Server) -> None:
    names = {
        "vllm:time_to_first_token_seconds_count": 2,
        "vllm:e2e_request_latency_seconds_count": 2,
        "vllm:inter_token_latency_seconds_count": 6,
        "vllm:request_time_per_output_token_seconds_count": 2,
        "vllm:request_success_total": 2,
    }
    before = {name: server.metric(name) for name in names}
    complete(server, "hi", n=2, max_tokens=4, ignore_eos=True)
    assert {name: server.metric(name) - before[name] for name in names} == names
