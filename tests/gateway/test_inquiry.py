"""What the front door reads of a body, and what it leaves as it came."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from penstock.errors import InvalidRequestError
from penstock.gateway.inquiry import MAX_CHOICES, Inquiry

CHAT = "createChatCompletion"


def inquiry(body: Any, operation: str = CHAT) -> Inquiry:
    return Inquiry(operation, body if isinstance(body, bytes) else json.dumps(body).encode())


def refusal(body: Any, operation: str = CHAT) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        inquiry(body, operation)
    return caught.value


ODD = (
    b'\n{ "messages" : [ {"role":"user","content":"\xc3\xa9\\u00e9\\/"} ],'
    b'"temperature":1.0,\t"seed":1e0 , "x":0.10}'
)


def test_a_body_that_is_not_changed_is_given_back_byte_for_byte() -> None:
    asked = inquiry(ODD)
    assert asked.encode() is ODD
    assert asked.size == len(ODD)


def test_a_change_touches_the_field_it_names_and_no_other_ones_bytes() -> None:
    asked = inquiry(ODD)
    before = {name: bytes(value) for name, value in asked.fields.items()}
    changed = inquiry(asked.encode({"model": "upstream", "seed": None}))
    after = {name: bytes(value) for name, value in changed.fields.items()}
    assert after.pop("model") == b'"upstream"'
    assert after == {name: value for name, value in before.items() if name != "seed"}
    assert asked.encode() is ODD, "it was for one reader only"


def test_what_is_set_stays_set_and_is_read_back() -> None:
    asked = inquiry({"messages": [], "max_tokens": 9, "stream": True})
    asked.set("max_tokens", 3)
    asked.set("model", "small")
    asked.set("stream", None)
    assert (asked.max_tokens, asked.model, asked.stream) == (3, "small", False)
    assert json.loads(asked.encode()) == {"messages": [], "max_tokens": 3, "model": "small"}
    assert json.loads(asked.encode({"n": 2})) == {"messages": [], "max_tokens": 3, "model": "small", "n": 2}
    assert asked.n == 1


def value(draw: random.Random, depth: int = 0) -> Any:
    kinds: list[Any] = [None, True, -3, 1.5, "text", 'é\u2028"\\', 10**15]
    if depth < 3:
        kinds += [[value(draw, depth + 1) for _ in range(draw.randrange(3))], {"a": value(draw, depth + 1)}]
    return draw.choice(kinds)


@pytest.mark.parametrize("seed", range(20))
def test_any_body_means_the_same_after_any_changes(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"field{number}" for number in range(8)]
    body = {name: value(draw) for name in draw.sample(names, 5)} | {"n": 1}
    asked = inquiry(body)
    for _ in range(6):
        name, new = draw.choice(names), value(draw)
        if draw.random() < 0.5:
            asked.set(name, new)
            body[name] = new
            if new is None:
                del body[name]
        else:
            expected = {key: old for key, old in body.items() if key != name}
            expected |= {} if new is None else {name: new}
            assert json.loads(asked.encode({name: new})) == expected
        assert json.loads(asked.encode()) == body


@pytest.mark.parametrize(
    ("operation", "fields", "limit"),
    [
        (CHAT, {}, None),
        (CHAT, {"max_tokens": 5}, 5),
        (CHAT, {"max_tokens": 7, "max_completion_tokens": 7}, 7),
        (CHAT, {"max_tokens": 0}, 0),
        ("createCompletion", {"max_tokens": 5, "max_completion_tokens": 7}, 5),
        ("createResponse", {"max_output_tokens": 6, "max_tokens": 5}, 6),
        ("createMessage", {"max_tokens": 4}, 4),
        ("createEmbedding", {"max_tokens": 4}, None),
    ],
)
def test_each_operation_has_its_own_name_for_the_most_tokens(
    operation: str, fields: dict[str, int], limit: int | None
) -> None:
    assert inquiry(fields, operation).max_tokens == limit


@pytest.mark.parametrize(("one", "other"), [(1, 5000), (5000, 1)])
def test_of_two_limits_the_larger_is_what_an_answer_may_take(one: int, other: int) -> None:
    assert inquiry({"messages": [], "max_completion_tokens": one, "max_tokens": other}).max_tokens == 5000


def test_one_of_two_limits_may_be_null() -> None:
    assert inquiry({"messages": [], "max_completion_tokens": None, "max_tokens": 5}).max_tokens == 5


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("model", 1), ("model", ["a"]), ("stream", "yes"), ("stream", 1), ("stream_options", []), ("n", "2"),
        ("n", True), ("n", 1.5), ("n", 0), ("n", -1), ("n", MAX_CHOICES + 1), ("n", 10**30),
        ("max_tokens", "all"), ("max_tokens", -1), ("max_tokens", -(10**20)),
        ("max_completion_tokens", -1), ("max_output_tokens", -1),
        ("max_tokens", 10**30), ("max_tokens", 1.5), ("max_tokens", True), ("max_completion_tokens", {}),
        ("service_tier", 1), ("user", 7), ("prompt_cache_key", []), ("cache_salt", 0),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_name(field: str, bad: Any) -> None:
    body = {"messages": [], field: bad, **({"stream": True} if field == "stream_options" else {})}
    assert refusal(body).param == field


@pytest.mark.parametrize("field", ["api_base", "base_url", "api_key"])
@pytest.mark.parametrize("given", ["http://127.0.0.1:1", None, {"a": 1}])
def test_where_and_as_whom_the_gateway_asks_is_not_the_clients_to_say(field: str, given: Any) -> None:
    error = refusal({"messages": [], field: given})
    assert (error.param, error.code) == (field, "unknown_parameter")


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"[]", b"null", b"1", b'"a"', b"{", b'{"n":NaN}', b'{"x":NaN}', b'{"x":Infinity}',
     b'{"a":1}x', b'{"x":"\xff"}', b'{"x":01}', b"{'x':1}",
     b'{"x":1,}', b'\xef\xbb\xbf{"x":1}', b'{"x":' + b"[" * 100_000,
     b'{"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001],
)  # fmt: skip
def test_what_is_no_json_object_is_refused_in_a_sentence(body: bytes) -> None:
    error = refusal(body)
    assert str(error).endswith(".")
    assert len(str(error)) < 300


def test_of_a_field_that_comes_twice_the_last_counts_and_goes_on() -> None:
    asked = inquiry(b'{"model":"a","max_tokens":1,"max_tokens":2,"model":"b"}')
    assert (asked.model, asked.max_tokens) == ("b", 2)
    assert json.loads(asked.encode({"n": 1})) == {"model": "b", "max_tokens": 2, "n": 1}


def test_options_of_a_stream_need_a_stream() -> None:
    assert refusal({"stream_options": {"include_usage": True}}).param == "stream_options"
    asked = inquiry(
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    )
    assert (asked.include_usage, asked.running_usage) == (True, True)
    assert not inquiry({"stream": True, "stream_options": None}).include_usage


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("operation", "body", "media"),
    [
        (CHAT, {"messages": [{"role": "user", "content": [IMAGE]}]}, True),
        (CHAT, {"messages": [{"role": "user", "content": 'of the type "image_url"'}]}, False),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "an image_url"}]}]},
            False,
        ),
        (CHAT, {"messages": [], "tools": [{"image_url": 1}]}, False),
        (CHAT, {"messages": [{"content": [{"image_url": "http://169.254.169.254/"}]}]}, True),
        (CHAT, {"messages": [{"content": [{"type": "input_audio", "input_audio": {}}]}]}, True),
        (CHAT, {"messages": [{"content": [{"type": "video_url"}]}]}, True),
        (
            "createResponse",
            {"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]},
            True,
        ),
        ("createResponse", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, True),
        ("createResponse", {"input": [{"type": "input_image"}]}, True),
        (
            "createMessage",
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            True,
        ),
        (
            "createMessage",
            {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]},
            True,
        ),
    ],
)
def test_an_image_is_told_from_a_text_about_one(operation: str, body: dict[str, Any], media: bool) -> None:
    assert inquiry(body, operation).has_media is media


def test_prompts_that_begin_alike_have_bytes_that_begin_alike() -> None:
    first = inquiry(
        {"messages": [{"role": "system", "content": "long " * 50}, {"role": "user", "content": "a"}]}
    )
    second = inquiry({"n": 2, "messages": [{"role": "system", "content": "long " * 50}, {"role": "user"}]})
    shared = len("long " * 50)
    assert first.prompt_bytes()[:shared] == second.prompt_bytes()[:shared]


def test_a_part_whose_name_is_spelled_with_escapes_is_one_all_the_same() -> None:
    part = b'{"type":"im\\u0061ge_url","im\\u0061ge_url":{"url":"http://169.254.169.254/"}}'
    assert inquiry(b'{"messages":[{"content":[' + part + b"]}]}").has_media


def test_another_reader_gets_every_field_once() -> None:
    asked = inquiry(b'{"model":"mine","messages":[],"model":"theirs"}')
    assert asked.model == "theirs"
    assert asked.encode({}) == b'{"model":"theirs","messages":[]}'


@pytest.mark.parametrize(
    ("body", "choices"),
    [
        ({"prompt": "one"}, 1),
        ({"prompt": ["one", "two"], "n": 3}, 6),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]], "best_of": 4, "n": 2}, 8),
        ({"prompt": []}, 1),
        ({"prompt": [None, "a", "b"]}, 3),
        ({"prompt": [{"prompt": "a"}, {"prompt": "b"}]}, 2),
        ({"prompt": [1, "a"]}, 2),
        ({"prompt_embeds": ["AAAA", "BBBB"], "n": 2}, 4),
        ({"prompt": None, "prompt_embeds": "AAAA"}, 1),
        ({"prompt": "a", "prompt_embeds": ["AAAA"]}, 2),
    ],
)
def test_every_prompt_of_several_has_its_choices(body: dict[str, Any], choices: int) -> None:
    assert inquiry(body, "createCompletion").choices == choices


def test_tools_are_part_of_the_prompt() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 4000}}]
    assert len(inquiry({"messages": [], "tools": tools}).prompt_bytes()) > 4000
