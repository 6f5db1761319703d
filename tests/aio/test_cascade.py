"""The second look: what is heard of an answer, what speaks against it, and what follows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.aio.cascade import (
    WEIGHTS,
    Heard,
    Look,
    TokenScores,
    ToolCall,
    Wants,
    agreement,
    findings,
    heard_stream,
    heard_whole,
    look_at,
    same_answer,
    wants_of,
    worth_sampling,
)
from penstock.aio.cascade.loops import loops
from penstock.aio.refusal import refuses

SCHEMA = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
}
JSON = wants_of("Who?", {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}})
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"required": ["where"]}}}]
CHOICE = Wants("Which is a planet?\nA) Mars\nB) Moon\nC) Sun")


def look(wants: Wants, heard: Heard, scores: TokenScores | None = None, **more: Any) -> Look:
    options = {"tokens": 20, "threshold": 0.5, **more}
    return look_at(wants, heard, scores or TokenScores(), **options)


def found(wants: Wants, text: str, **more: Any) -> list[str]:
    return findings(wants, Heard(text, ending="stop", **more), 20)


def scored(*logprobs: float, first: int = 0) -> TokenScores:
    scores = TokenScores(first)
    for logprob in logprobs:
        scores.token(logprob)
    return scores


# ---------------------------------------------------------------- what is heard


@pytest.mark.parametrize(
    ("asks", "body", "text", "ending"),
    [
        (
            "createChatCompletion",
            {"choices": [{"message": {"content": "hi"}, "finish_reason": "length"}]},
            "hi",
            "length",
        ),
        (
            "createChatCompletion",
            {"choices": [{"message": {"content": [{"text": "a"}, {"text": "b"}]}}]},
            "ab",
            "",
        ),
        ("createCompletion", {"choices": [{"text": "hi", "finish_reason": "stop"}]}, "hi", "stop"),
        (
            "createResponse",
            {
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [{"type": "reasoning"}, {"type": "message", "content": [{"text": "hi"}]}],
            },
            "hi",
            "length",
        ),
        (
            "createMessage",
            {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"},
            "hi",
            "stop",
        ),
    ],
)
def test_the_text_of_each_operations_answer_is_heard(asks: str, body: Any, text: str, ending: str) -> None:
    heard = heard_whole(asks, json.dumps(body).encode())
    assert heard is not None
    assert (heard.text, heard.ending, heard.whole) == (text, ending, True)


def events(*contents: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(content).encode() + b"\n\n" for content in contents)


def called(**function: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": function}]}}]}


STREAMS = {
    "createChatCompletion": events(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"index": 0, "delta": {"content": "he"}}]},
        {"choices": [{"index": 0, "delta": {"content": "llo"}}]},
        called(name="f", arguments=""),
        called(arguments='{"a":'),
        called(arguments="1}"),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {}},
    )
    + b"data: [DONE]\n\n",
    "createResponse": events(
        {"type": "response.created", "response": {}},
        {"type": "response.output_text.delta", "delta": "he"},
        {"type": "response.output_text.delta", "delta": "llo"},
        {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}},
        {"type": "response.function_call_arguments.delta", "delta": '{"a":1}'},
        {"type": "response.completed", "response": {"status": "completed"}},
    ),
    "createMessage": events(
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello"}},
        {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f", "input": {}}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ),
}


@pytest.mark.parametrize("asks", list(STREAMS))
def test_a_stream_says_what_the_whole_would(asks: str) -> None:
    heard = heard_stream(asks, STREAMS[asks], ended=True)
    assert heard is not None
    assert (heard.text, heard.tools) == ("hello", [ToolCall("f", '{"a":1}')])
    assert heard.ending in ("tool", "stop")


def test_the_beginning_of_a_stream_is_heard_up_to_its_last_whole_event() -> None:
    data = events(*({"choices": [{"text": word}]} for word in ("one ", "two ", "three ")))
    heard = heard_stream("createCompletion", data[:-5], ended=False)
    assert heard == Heard("one two ", whole=False)


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[3]}', b"[" * 100_000]
)
@pytest.mark.parametrize("asks", [*STREAMS, "createCompletion", "createEmbedding"])
def test_what_is_no_answer_says_nothing_and_is_doubted(asks: str, body: bytes) -> None:
    stream = b"data: " + body + b"\n\n"
    for heard in (heard_whole(asks, body), heard_stream(asks, stream, ended=True)):
        assert heard == (None if asks == "createEmbedding" else Heard())
        assert heard is None or not look(Wants("Why?"), heard).accept
    begun = heard_stream(asks, stream, ended=False)
    assert begun is None or look(Wants("Why?"), begun).accept, "more may come"


# ---------------------------------------------------------------- what speaks against it


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that.",
        "I\u2019m sorry, but I can\u2019t help with that.",
        "As an AI language model, I do not have opinions.",
        "Unfortunately, I am unable to provide this.",
        "I cannot fulfill this request.",
        "Es tut mir leid, aber ich kann diese Frage nicht beantworten.",
        "Ich kann Ihnen dabei leider nicht helfen.",
        "Je suis désolé, mais je ne peux pas répondre à cette question.",
        "Lo siento, pero no puedo ayudar con eso.",
        "Desculpe, mas não posso ajudar com isso.",
        "Mi dispiace, ma non posso aiutarti.",
        "Извините, но я не могу ответить на этот вопрос.",
        "很抱歉，我无法回答这个问题。",
        "申し訳ありませんが、その質問にはお答えできません。",
        "죄송하지만 그 요청은 도와드릴 수 없습니다.",
    ],
)
def test_refusals_are_known_in_many_languages(text: str) -> None:
    assert refuses(text)
    assert not look(Wants("?"), Heard(text, ending="stop")).accept


@pytest.mark.parametrize(
    "text",
    [
        "You cannot divide by zero.",
        "I can help with that: first, open the door.",
        "The model cannot be trained without data.",
        "Sorry is a card game for two to four players.",
        "Leider regnet es heute.",
        "The chatbot said: 'as an engineer I cannot sleep'.",
        "AI is a field of computer science.",
        "",
    ],
)
def test_answers_that_speak_of_what_cannot_be_are_no_refusals(text: str) -> None:
    assert not refuses(text)


def test_an_answer_that_goes_on_after_its_regrets_is_one() -> None:
    assert not refuses("I'm sorry, but I cannot help in general. " + "Here is how it is done. " * 60)


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 4. " * 12,
        "and the " * 20,
        "It begins well. " + "Then it says this again and again, without end, " * 6 + "Then it",
        "哈" * 40,
        "abc" * 30,
    ],
)
def test_loops_are_noticed(text: str) -> None:
    assert loops(text)


@pytest.mark.parametrize(
    "text",
    [
        "No, no, no!",
        "| a | b |\n| --- | --- | --- | --- | --- | --- | --- | --- |",
        "0.333333333333333333333333333333333",
        "\n".join(f"{n}. Item number {n} is {n * n}" for n in range(40)),
        "The cat sat. The dog sat. The cow sat. The hen sat.",
        "=" * 200,
        "Aaaaaah!",
    ],
)
def test_lists_tables_and_emphasis_are_no_loops(text: str) -> None:
    assert not loops(text)


def test_what_was_to_be_repeated_may_be() -> None:
    assert found(Wants("Repeat the word sky twenty times"), "sky " * 20) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('{"name": "Ann", "age": 3}', None),
        ('{"name": "Ann"}', "required keys are missing"),
        ('{"name": "Ann", "age": "three"}', "a value has another type than the schema says"),
        ('{"name": "Ann", "age": true}', "a value has another type than the schema says"),
        ('{"name": "Ann", "age": 3', "not the JSON that was asked for"),
        ('```json\n{"name": "Ann", "age": 3}\n```', "not the JSON that was asked for"),
        ("Ann is three.", "not the JSON that was asked for"),
        ("[1]", "not the JSON that was asked for"),
    ],
)
def test_json_is_held_against_the_top_of_its_schema(text: str, finding: str | None) -> None:
    assert found(JSON, text) == ([] if finding is None else [finding])
    assert look(JSON, Heard(text, ending="stop")).accept == (finding is None)


def test_the_beginning_of_json_can_be_seen_to_be_none() -> None:
    wants = wants_of("", {"text": {"format": {"type": "json_object"}}})
    assert look(wants, Heard('{"a', whole=False)).accept
    assert not look(wants, Heard("Sure! Here", whole=False)).accept


@pytest.mark.parametrize(
    ("tools", "choice", "finding"),
    [
        ([ToolCall("look", '{"where": "here"}')], "auto", None),
        ([], "auto", None),
        ([ToolCall("look", '{"where": ')], "auto", "a tool call is not valid"),
        ([ToolCall("look", "{}")], "auto", "a tool call is not valid"),
        ([ToolCall("leap", "{}")], "auto", "a tool call is not valid"),
        ([ToolCall()], "auto", "a tool call is not valid"),
        ([], "required", "no tool was called"),
        ([], {"type": "function", "function": {"name": "look"}}, "no tool was called"),
    ],
)
def test_tool_calls_must_be_ones_that_can_be_made(
    tools: list[ToolCall], choice: Any, finding: str | None
) -> None:
    wants = wants_of("Where?", {"tools": TOOLS, "tool_choice": choice})
    heard = Heard("" if tools else "There.", tools, ending="tool")
    assert findings(wants, heard, 20) == ([] if finding is None else [finding])


def test_a_tool_call_without_a_name_is_none_whatever_tools_there_are() -> None:
    body = {"choices": [{"message": {"content": None, "tool_calls": [{"function": None}]}}]}
    heard = heard_whole("createChatCompletion", json.dumps(body).encode())
    assert heard is not None
    assert not look(Wants("Where?"), heard).accept


def test_a_choice_must_be_made_where_one_was_offered() -> None:
    assert found(CHOICE, "The answer is A.") == []
    assert found(CHOICE, "All of these are in the sky.") == ["no choice"]
    assert not look(CHOICE, Heard("All of these are in the sky.", ending="stop")).accept


def test_an_open_code_block_or_a_word_for_an_essay_is_doubtful_and_no_more() -> None:
    block = look(Wants("Sort a list"), Heard("```python\nsorted(x)", ending="stop"))
    short = look(Wants("Explain how a lock works."), Heard("Yes.", ending="stop"))
    plain = look(Wants("Is it?"), Heard("Yes.", ending="stop"))
    assert block.reasons == ("a code block is not closed",)
    assert short.reasons == ("very short for what was asked",)
    assert 0.2 < short.confidence < block.confidence < plain.confidence
    assert plain.reasons == ()


def test_an_answer_that_its_tier_cut_off_does_not_pass_but_one_that_its_client_did_does() -> None:
    heard = Heard('{"name": "An', ending="length")
    mine = wants_of("", {"max_tokens": 20, "response_format": {"type": "json_object"}})
    assert look(mine, heard, tokens=20).accept, "any other model would be cut off just there"
    assert not look(mine, heard, tokens=12).accept
    assert not look(Wants("Who?"), Heard("Ann and", ending="length")).accept


def test_an_answer_far_longer_than_usual_is_doubted_more_the_longer_it_is() -> None:
    heard = Heard("words", ending="stop")
    looks = [look(Wants("?"), heard, tokens=tokens, usual=100.0) for tokens in (150, 250, 450)]
    assert [each.reasons for each in looks] == [(), ("longer than usual",), ("far longer than usual",)]
    assert looks[0].confidence > looks[1].confidence > looks[2].confidence


def test_nothing_is_empty_before_it_has_ended() -> None:
    assert look(Wants("?"), Heard(whole=False)).accept
    assert look(Wants("?"), Heard()).reasons == ("empty",)


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": "json", "tools": 3, "tool_choice": [], "max_tokens": "many"},
        {"response_format": {"type": "json_schema", "schema": {"required": 3, "properties": []}}},
        {"tools": [None, {"function": {"name": 3}}, {"name": "f", "input_schema": {"required": [1]}}]},
    ],
)
def test_malformed_wishes_are_no_wishes(fields: dict[str, Any]) -> None:
    assert findings(wants_of("?", fields), Heard('{"a": 1}', ending="stop"), 20) == []


# ---------------------------------------------------------------- how sure


def test_every_finding_has_a_weight_that_speaks_against_the_answer() -> None:
    assert all(weight < 0 for weight in WEIGHTS.values())


def test_the_surer_the_model_was_the_more_its_answer_is_trusted() -> None:
    heard = Heard("Paris.", ending="stop")
    unknown = look(Wants("?"), heard).confidence
    sure = look(Wants("?"), heard, scored(-0.01, -0.02)).confidence
    unsure = look(Wants("?"), heard, scored(-2.5, -3.0, -0.5)).confidence
    assert sure > unknown > unsure
    assert "the model was not sure" in look(Wants("?"), heard, scored(-2.5, -3.0, -0.5)).reasons


def test_a_beginning_that_was_a_guess_is_not_made_good_by_what_follows_from_it() -> None:
    guess = [-3.0] * 4 + [-0.01] * 96
    assert scored(*guess, first=4).mean_of_first == pytest.approx(-3.0)
    heard = Heard("words", ending="stop")
    assert look(Wants("?"), heard, scored(*guess, first=4)).confidence < 0.5
    assert look(Wants("?"), heard, scored(*guess)).confidence > 0.5


def test_one_impossible_token_does_not_drown_all_others() -> None:
    scores = scored(*[-0.01] * 99, float("-inf"))
    assert scores.mean > -0.5
    assert scores.lowest == -20.0
    scores.clear()
    assert (scores.count, scores.mean, scores.lowest) == (0, 0.0, 0.0)


def test_the_threshold_decides() -> None:
    heard = Heard("words", ending="stop")
    confidence = look(Wants("?"), heard).confidence
    assert look(Wants("?"), heard, threshold=confidence).accept
    assert not look(Wants("?"), heard, threshold=confidence + 0.01).accept


# ---------------------------------------------------------------- asking again


def test_samples_are_compared_by_what_they_come_to() -> None:
    question = "How many legs do 3 cows have?"
    assert agreement(question, "12 legs.", ["They have 12.", "3 x 4 = 12", "It is 14."]) == pytest.approx(
        2 / 3
    )
    assert agreement(question, "12 legs.", []) is None
    assert same_answer("Tell me of cows.", "Cows are animals.", "A cow gives milk.") is None


def test_agreement_lifts_and_disagreement_lowers_the_confidence() -> None:
    heard = Heard("12", ending="stop")
    alone, alike, unlike = (look(Wants("?"), heard, agreed=agreed) for agreed in (None, 1.0, 0.0))
    assert unlike.confidence < alone.confidence < alike.confidence
    assert unlike.reasons == ("further samples disagree",)


def test_only_doubt_is_worth_a_sample() -> None:
    assert worth_sampling(0.55, 0.5)
    assert worth_sampling(0.4, 0.5)
    assert not worth_sampling(0.01, 0.5)
    assert not worth_sampling(0.99, 0.5)
