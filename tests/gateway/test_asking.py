"""What the two generating endpoints can be asked beyond sampling, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server import Server

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
PARIS = "The capital of France is"


def complete(server: Server, prompt: Any = PARIS, **fields: Any) -> dict[str, Any]:
    reply = server.post(TEXT, {"prompt": prompt, "temperature": 0, "max_tokens": 6, **fields})
    assert reply.status == 200, reply.body
    return dict(reply.json())


def ask(server: Server, content: str = "What is the capital of France?", **fields: Any) -> dict[str, Any]:
    messages = fields.pop("messages", [{"role": "user", "content": content}])
    reply = server.post(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 6, **fields})
    assert reply.status == 200, reply.body
    return dict(reply.json())


def ids_of(server: Server, text: str) -> list[int]:
    return list(server.post("/tokenize", {"prompt": text}).json()["tokens"])


def streamed(server: Server, path: str, **body: Any) -> list[dict[str, Any]]:
    with server.streaming(path, {"temperature": 0, "max_tokens": 6, "stream": True, **body}) as chunks:
        *events, done = chunks
    assert done == "[DONE]"
    return events


# --------------------------------------------------------------------- echo


def test_echo_puts_the_prompt_in_front(server: Server) -> None:
    plain = complete(server)["choices"][0]["text"]
    [choice] = complete(server, echo=True)["choices"]
    assert choice["text"] == PARIS + plain
    assert choice["logprobs"] is None


def test_an_echoed_prompt_has_logprobs_like_an_answer(server: Server) -> None:
    ids = ids_of(server, PARIS)
    plain = complete(server, logprobs=2)["choices"][0]
    [choice] = complete(server, echo=True, logprobs=2)["choices"]
    scores = choice["logprobs"]
    assert len(scores["tokens"]) == len(ids) + 6
    assert "".join(scores["tokens"]) == choice["text"]
    assert (scores["token_logprobs"][0], scores["top_logprobs"][0]) == (None, None)
    assert all(score <= 0 for score in scores["token_logprobs"][1:])
    for token, offset, top in zip(
        scores["tokens"][1:], scores["text_offset"][1:], scores["top_logprobs"][1:], strict=True
    ):
        assert choice["text"][offset:].startswith(token)
        assert token in top
        assert len(top) <= 3
    answer = {name: values[len(ids) :] for name, values in scores.items()}
    assert answer["tokens"] == plain["logprobs"]["tokens"]
    assert answer["token_logprobs"] == pytest.approx(plain["logprobs"]["token_logprobs"], abs=1e-4)


def test_a_prompt_can_be_scored_without_generating(server: Server) -> None:
    """As evaluation harnesses do: the log probability of a continuation, given as part of the prompt."""
    answer = complete(server, PARIS + " Paris", echo=True, logprobs=1, max_tokens=0)
    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == (PARIS + " Paris", "length")
    assert answer["usage"]["completion_tokens"] == 0
    generated = complete(server, logprobs=1, max_tokens=1)["choices"][0]["logprobs"]
    assert generated["tokens"] == [" Paris"]
    assert choice["logprobs"]["token_logprobs"][-1] == pytest.approx(generated["token_logprobs"][0], abs=1e-4)


def test_an_evaluation_harness_can_tell_how_likely_and_how_greedy_a_continuation_is(server: Server) -> None:
    """Context and continuation as one prompt of ids, one token more generated, and cut off again."""
    context = ids_of(server, PARIS)
    greedy = ids_of(server, complete(server, max_tokens=3)["choices"][0]["text"])
    other = ids_of(server, " not known at all")
    body = {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1234}
    answer = complete(server, [context + greedy, context + other], **body)
    verdicts = []
    for choice in answer["choices"]:
        scores = choice["logprobs"]["token_logprobs"][len(context) : -1]
        top = choice["logprobs"]["top_logprobs"][len(context) : -1]
        verdicts.append((sum(scores), all(s == max(t.values()) for s, t in zip(scores, top, strict=True))))
    (likely, is_greedy), (unlikely, is_not) = verdicts
    assert (is_greedy, is_not) == (True, False)
    assert likely > unlikely


def test_echo_of_token_ids_and_of_several_prompts_and_choices(server: Server) -> None:
    ids = ids_of(server, PARIS)
    answer = complete(server, [ids, ids_of(server, "Hello")], echo=True, n=2, logprobs=0, max_tokens=1)
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert [choice["text"].startswith(PARIS) for choice in choices] == [True, True, False, False]
    assert [len(choice["logprobs"]["tokens"]) for choice in choices] == [len(ids) + 1] * 2 + [2] * 2


@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize("max_tokens", [0, 4])
def test_a_streamed_echo_sends_the_prompt_first(
    server: Server, logprobs: int | None, max_tokens: int
) -> None:
    body = {"prompt": [PARIS, "Hello"], "echo": True, "logprobs": logprobs, "max_tokens": max_tokens, "n": 2}
    whole = complete(server, **body)["choices"]
    chunks = [chunk["choices"][0] for chunk in streamed(server, TEXT, **body)]
    for index, expected in enumerate(whole):
        mine = [chunk for chunk in chunks if chunk["index"] == index]
        assert mine[0]["text"] == (PARIS if index < 2 else "Hello")
        assert "".join(chunk["text"] for chunk in mine) == expected["text"]
        assert mine[-1]["finish_reason"] == expected["finish_reason"]
        if logprobs is not None:
            tokens = [token for chunk in mine if chunk["logprobs"] for token in chunk["logprobs"]["tokens"]]
            assert tokens == expected["logprobs"]["tokens"]


def test_stop_strings_do_not_look_at_the_prompt(server: Server) -> None:
    [choice] = complete(server, "One, two, three,", echo=True, stop=["two"])["choices"]
    assert choice["text"].startswith("One, two, three,")
    assert choice["finish_reason"] == "length"


# ---------------------------------------------------------- prompt logprobs


def check_prompt_logprobs(rows: list[Any], ids: list[int], top: int) -> None:
    assert len(rows) == len(ids)
    assert rows[0] is None
    for token, row in zip(ids[1:], rows[1:], strict=True):
        entry = row[str(token)]
        assert entry["logprob"] <= 0
        assert entry["rank"] >= 1
        assert top <= len(row) <= top + 1
        ranks = sorted(other["rank"] for other in row.values())
        assert ranks[:top] == list(range(1, top + 1))
        assert all(isinstance(other["decoded_token"], str) for other in row.values())


def test_prompt_logprobs_of_a_completion_stand_in_the_choice(server: Server) -> None:
    [choice] = complete(server, prompt_logprobs=2)["choices"]
    check_prompt_logprobs(choice["prompt_logprobs"], ids_of(server, PARIS), 2)
    assert "prompt_logprobs" not in complete(server)["choices"][0]
    single = complete(server, [5], prompt_logprobs=2)["choices"][0]
    assert single["prompt_logprobs"] == [None]


def test_prompt_logprobs_of_a_chat_stand_beside_the_choices(server: Server) -> None:
    answer = ask(server, prompt_logprobs=1, return_token_ids=True)
    check_prompt_logprobs(answer["prompt_logprobs"], answer["prompt_token_ids"], 1)
    assert "prompt_logprobs" not in ask(server)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_logprobs": 20, "n": 128}, "prompt_logprobs"),
        ({"logprobs": 20, "echo": True, "n": 128, "max_tokens": 0}, "logprobs"),
    ],
)
def test_more_scores_than_an_answer_can_hold_are_refused(
    server: Server, fields: dict[str, Any], param: str
) -> None:
    reply = server.post(TEXT, {"prompt": [5] * 200, **fields})
    assert (reply.status, reply.error["param"]) == (400, param)
    assert "at most 262144" in reply.error["message"]


def test_no_alternatives_leave_the_prompts_own_tokens(server: Server) -> None:
    [choice] = complete(server, prompt_logprobs=0, echo=True, logprobs=3)["choices"]
    assert [len(row) for row in choice["prompt_logprobs"][1:]] == [1] * (len(ids_of(server, PARIS)) - 1)
    assert len(choice["logprobs"]["top_logprobs"][2]) >= 3


# ------------------------------------------------------------------ best_of


def test_best_of_returns_the_likeliest_and_counts_all(server: Server) -> None:
    sampling = {"temperature": 1.5, "seed": 3, "max_tokens": 8, "ignore_eos": True}
    everything = complete(server, ["Once", "Twice"], n=5, logprobs=0, **sampling)
    best = complete(server, ["Once", "Twice"], n=2, best_of=5, **sampling)
    assert best["usage"]["completion_tokens"] == 2 * 5 * 8
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert all(choice["logprobs"] is None for choice in best["choices"])
    for prompt in range(2):
        group = everything["choices"][prompt * 5 : prompt * 5 + 5]
        ranked = sorted(group, key=lambda choice: -sum(choice["logprobs"]["token_logprobs"]))
        expected = [choice["text"] for choice in ranked[:2]]
        assert [choice["text"] for choice in best["choices"][prompt * 2 : prompt * 2 + 2]] == expected


def test_best_of_n_is_nothing_new_and_streams(server: Server) -> None:
    chunks = streamed(server, TEXT, prompt=PARIS, n=2, best_of=2)
    assert {chunk["choices"][0]["index"] for chunk in chunks} == {0, 1}


# ------------------------------------------------- what may be generated


@pytest.mark.parametrize("field", ["guided_choice", "structured_outputs"])
def test_the_answer_is_one_of_the_choices(server: Server, field: str) -> None:
    choices = ["Berlin", "Madrid", "Paris", "A city that nobody would expect to be the capital of anything"]
    fields = {field: choices if field == "guided_choice" else {"choice": choices}}
    [choice] = ask(server, max_tokens=None, **fields)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Paris", "stop")
    sampled = complete(server, n=8, temperature=2, max_tokens=None, **fields)["choices"]
    assert {choice["text"] for choice in sampled} <= set(choices)
    assert {choice["finish_reason"] for choice in sampled} == {"stop"}
    chunks = streamed(
        server, CHAT, messages=[{"role": "user", "content": "Capital of Spain?"}], max_tokens=None, **fields
    )
    text = "".join(c["delta"].get("content", "") for chunk in chunks for c in chunk["choices"])
    assert text in choices


def test_bad_words_and_allowed_tokens_are_obeyed(server: Server) -> None:
    assert "Paris" in complete(server)["choices"][0]["text"]
    assert "Paris" not in complete(server, bad_words=["Paris"])["choices"][0]["text"]
    digits = ids_of(server, "0123456789")
    assert complete(server, allowed_token_ids=digits)["choices"][0]["text"].isdigit()


def test_rules_that_leave_nothing_to_say_are_the_clients_mistake(server: Server) -> None:
    rules = {"guided_choice": ["Paris"], "bad_words": ["Paris"]}
    reply = server.post(TEXT, {"prompt": PARIS, **rules})
    assert reply.status == 400, reply.body
    [event] = streamed(server, TEXT, prompt=PARIS, **rules)
    for error in (reply.json()["error"], event["error"]):
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("Every token is forbidden at this point by the request's own")
    assert complete(server)["choices"][0]["text"]


def test_token_ids_the_model_does_not_have_are_refused(server: Server) -> None:
    reply = server.post(TEXT, {"prompt": "x", "allowed_token_ids": [10_000_000]})
    assert (reply.status, reply.error["param"]) == (400, "allowed_token_ids")


def test_bad_words_of_white_space_are_refused(server: Server) -> None:
    reply = server.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "bad_words": ["  "]})
    assert (reply.status, reply.error["param"]) == (400, "bad_words")


# -------------------------------------------------------------- truncation


def test_a_long_prompt_is_cut_where_asked(server: Server) -> None:
    ids = ids_of(server, "one two three four five six seven eight nine ten")
    shown = {"return_token_ids": True, "max_tokens": 1}
    kept = complete(server, ids, truncate_prompt_tokens=4, **shown)
    assert kept["choices"][0]["prompt_token_ids"] == ids[-4:]
    assert kept["usage"]["prompt_tokens"] == 4
    right = complete(server, ids, truncate_prompt_tokens=4, truncation_side="right", **shown)
    assert right["choices"][0]["prompt_token_ids"] == ids[:4]
    whole = complete(server, ids, truncate_prompt_tokens=400, truncation_side="left", **shown)
    assert whole["choices"][0]["prompt_token_ids"] == ids
    echoed = complete(server, "one two three four", truncate_prompt_tokens=2, echo=True, max_tokens=0)
    assert echoed["choices"][0]["text"] == " three four"


def test_minus_one_keeps_what_leaves_room_for_the_answer(server: Server) -> None:
    context = server.get("/v1/models").json()["data"][0]["max_model_len"]
    ids = [5] * (context + 10)
    assert server.post(TEXT, {"prompt": ids, "max_tokens": 1}).status == 400
    room: dict[str, Any] = {"truncate_prompt_tokens": -1, "max_tokens": context - 20, "guided_choice": [","]}
    answer = complete(server, [7, *ids], **room)
    assert answer["usage"]["prompt_tokens"] == 20
    chat = ask(server, "hello " * 50, **room)
    assert chat["usage"]["prompt_tokens"] == 20


# --------------------------------------------------------------- token ids


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_token_ids_come_with_the_text(server: Server, path: str) -> None:
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    body = {**prompt, "temperature": 0, "max_tokens": 6, "return_token_ids": True, "ignore_eos": True}
    whole = server.post(path, body).json()
    [choice] = whole["choices"]
    prompt_ids = (whole if path == CHAT else choice)["prompt_token_ids"]
    assert len(prompt_ids) == whole["usage"]["prompt_tokens"]
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert server.post("/detokenize", {"tokens": choice["token_ids"]}).json()["prompt"] == text
    chunks = streamed(server, path, **body)
    first = chunks[0] if path == CHAT else chunks[0]["choices"][0]
    assert first["prompt_token_ids"] == prompt_ids
    pieces = [token for chunk in chunks for c in chunk["choices"] for token in c.get("token_ids", [])]
    assert pieces == choice["token_ids"]
    assert "token_ids" not in server.post(path, {**body, "return_token_ids": False}).json()["choices"][0]


def test_tokens_in_logprobs_can_be_ids(server: Server) -> None:
    fields: dict[str, Any] = {"return_tokens_as_token_ids": True, "return_token_ids": True}
    [choice] = complete(server, logprobs=2, echo=True, **fields)["choices"]
    ids = [*choice["prompt_token_ids"], *choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in ids]
    assert choice["logprobs"]["text_offset"][1] == 3
    [choice] = ask(server, logprobs=True, top_logprobs=1, **fields)["choices"]
    entries = choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == [f"token_id:{token}" for token in choice["token_ids"]]
    assert entries[0]["top_logprobs"][0]["token"] == entries[0]["token"]


# --------------------------------------------------------------- templates


def test_the_assistants_turn_is_opened_unless_told_otherwise(server: Server) -> None:
    opened = ask(server, "hi", return_token_ids=True, max_tokens=1)["prompt_token_ids"]
    bare = ask(server, "hi", return_token_ids=True, max_tokens=1, add_generation_prompt=False)
    assert opened[: len(bare["prompt_token_ids"])] == bare["prompt_token_ids"]
    assert len(bare["prompt_token_ids"]) < len(opened)


def test_a_continued_message_takes_everything_else_too(server: Server) -> None:
    messages = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "The capital of France is"},
    ]
    resumed: dict[str, Any] = {"messages": messages, "continue_final_message": True}
    assert "Paris" in ask(server, **resumed)["choices"][0]["message"]["content"]
    guided = ask(server, guided_choice=[" Rome", " Paris"], **resumed)["choices"][0]["message"]["content"]
    assert guided == " Paris"
    banned = ask(server, bad_words=["Paris"], **resumed)["choices"][0]["message"]["content"]
    assert "Paris" not in banned
    scored = ask(server, prompt_logprobs=0, return_token_ids=True, **resumed)
    check_prompt_logprobs(scored["prompt_logprobs"], scored["prompt_token_ids"], 0)
    searched = ask(server, use_beam_search=True, n=2, **resumed)["choices"]
    assert "Paris" in searched[0]["message"]["content"]
    reply = server.post(CHAT, {**resumed, "add_generation_prompt": True})
    assert (reply.status, reply.error["param"]) == (400, "continue_final_message")


@pytest.mark.parametrize(
    ("path", "field", "words"),
    [
        (TEXT, {"suffix": "the end"}, "put its own markers into the prompt"),
        (TEXT, {"logits_processors": ["x:y"]}, "only the Python API"),
        (CHAT, {"guided_json": {"type": "object"}}, "guided_choice"),
        (CHAT, {"structured_outputs": {"regex": "a+"}}, "only choice"),
        (TEXT, {"max_tokens": 0}, "at least 1"),
    ],
)
def test_what_is_refused_says_what_to_do_instead(
    server: Server, path: str, field: dict[str, Any], words: str
) -> None:
    body = {"prompt": "x"} if path == TEXT else {"messages": [{"role": "user", "content": "x"}]}
    reply = server.post(path, {**body, **field})
    assert reply.status == 400
    assert words in reply.error["message"]
