"""What is asked, told apart from the text around it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aio.features import FEATURES, features
from penstock.aio.query import ASK_CHARS, CONTEXT_CHARS, SYSTEM_CHARS, Query, query_of, query_of_text
from penstock.aio.regions import REGIONS, region

OPERATIONS = ("createChatCompletion", "createCompletion", "createResponse", "createMessage")


def chat(*messages: dict[str, Any], **more: Any) -> Query:
    return query_of("createChatCompletion", {"model": "auto", "messages": list(messages), **more})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_the_last_user_turn_is_what_is_asked_and_earlier_ones_are_context() -> None:
    query = chat(
        {"role": "system", "content": "Be brief."},
        user("Who wrote Faust?"),
        {"role": "assistant", "content": "Goethe."},
        user("And when was he born?"),
    )
    assert query.ask == "And when was he born?"
    assert "Who wrote Faust?" in query.context
    assert query.system == "Be brief."
    assert query.turns == 2


def test_parts_of_a_message_are_read_and_pictures_are_seen() -> None:
    query = chat(user([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {}}]))
    assert query.ask == "What is this?"
    assert query.media


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("createCompletion", {"prompt": "What is it?"}),
        ("createCompletion", {"prompt": ["What is it?", "another"]}),
        ("createResponse", {"input": "What is it?", "instructions": "Be brief."}),
        (
            "createResponse",
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}]}]},
        ),
        ("createMessage", {"system": [{"type": "text", "text": "x"}], "messages": [user("What is it?")]}),
    ],
)
def test_every_api_says_the_same(operation: str, body: dict[str, Any]) -> None:
    assert query_of(operation, body).ask == "What is it?"


def test_tools_and_forms_of_answers_are_counted() -> None:
    query = chat(user("x"), tools=[{}, {}], response_format={"type": "json_schema"})
    assert (query.tools, query.schema) == (2, True)
    assert query_of("createResponse", {"input": "x", "text": {"format": {"type": "json_object"}}}).schema


def test_token_ids_leave_no_question_and_keep_their_number() -> None:
    query = query_of("createCompletion", {"prompt": list(range(300))})
    assert (query.ask, query.prompt_tokens) == ("", 300)


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("You are a helpful assistant.\n\nWhat is a cat?", "What is a cat?"),
        ("Context: The cat sat on the mat.\n\nQuestion: Where is the cat?\nAnswer:", "Where is the cat?"),
        ("Q: 1+1?\nA: 2\n\nQ: 2+2?\nA: 4\n\nQ: What is 3+3?\nA:", "What is 3+3?"),
        ("<document>Long text.</document>\nWhat does it say?", "What does it say?"),
        ("<context>old</context><question>What is new?</question>", "What is new?"),
        ("What is 2+2? Let's think step by step.", "What is 2+2?"),
        ("The following are multiple choice questions about law.\n\nIs it legal?\nA. Yes\nB. No\nAnswer:",
         "Is it legal?\nA. Yes\nB. No"),
        ("Question: Is it legal?\nA: Yes\nB: No", "Is it legal?\nA: Yes\nB: No"),
        ("You are given a list. Sort it.", "You are given a list. Sort it."),
    ],
)  # fmt: skip
def test_harness_is_not_part_of_the_question(text: str, ask: str) -> None:
    assert query_of_text(text).ask == ask


def test_a_question_before_its_material_is_found() -> None:
    query = query_of_text(
        "Summarize this article in a sentence.\n\nArticle: Once upon a time there was a king."
    )
    assert query.ask == "Summarize this article in a sentence."
    assert "king" in query.context


def test_only_the_beginning_of_a_long_listing_belongs_to_the_question() -> None:
    query = query_of_text("What does this do?\n```python\n" + "x = 1\n" * 2000 + "```")
    assert query.ask.startswith("What does this do?")
    assert len(query.ask) < 1200


def test_a_document_around_a_short_question_does_not_make_it_a_long_one() -> None:
    short = query_of_text("Where does she live?")
    wrapped = query_of_text(
        "Context: " + "She lives in Rome, near the river. " * 400 + "\n\nQuestion: Where does she live?"
    )
    assert wrapped.ask == short.ask
    assert wrapped.prompt_tokens > 3000


@pytest.mark.parametrize(
    "text",
    ["a" * 200_000, " " * 200_000, "<doc>" * 40_000, "```" * 60_000, "question: " * 20_000, "\n" * 200_000,
     "$" * 200_000, "(A) x\n" * 30_000, "ж" * 200_000, "1/2 " * 50_000],
    ids=lambda text: repr(text[:6]),
)  # fmt: skip
def test_no_text_grows_beyond_its_bounds(text: str) -> None:
    query = query_of_text(text)  # quadratic work on 200,000 characters would run into the test's time limit
    assert features(query).shape == (len(FEATURES),)
    assert region(query) in REGIONS
    assert len(query.ask) <= ASK_CHARS + 2
    assert len(query.context) <= CONTEXT_CHARS
    assert len(query.system) <= SYSTEM_CHARS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "output", "format", "x"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@settings(max_examples=150)
@given(
    st.sampled_from((*OPERATIONS, "createEmbedding")),
    st.dictionaries(
        st.sampled_from(
            [
                "messages",
                "prompt",
                "input",
                "system",
                "instructions",
                "tools",
                "functions",
                "text",
                "response_format",
            ]
        ),
        JSON,
    ),
)
def test_no_body_is_too_malformed_to_be_read(operation: str, body: dict[str, Any]) -> None:
    query = query_of(operation, body)
    assert isinstance(query.ask, str)
    assert region(query) in REGIONS
