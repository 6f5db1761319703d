"""Which answer that is kept is found for a question, with the real encoder and the real verifier."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from penstock.aio.encoder import Encoder, open_encoder
from penstock.cli.app import run
from penstock.errors import ConfigError
from penstock.gateway.cache.semantic import MAX_PENDING, SemanticFinder
from penstock.gateway.cache.verify import accept
from penstock.gateway.cache.verify_pairs import read_pairs
from tests.gateway.cache.pairs import ALIKE, DIFFERENT

ASKED = "How do I reset my password?"
SAME = "What is the best way to reset my password?"


@pytest.fixture(scope="module")
def encoder(embedding_model: Path) -> Encoder:
    return open_encoder(embedding_model)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def finder(encoder: Encoder, clock: Clock) -> Iterator[SemanticFinder]:
    made = SemanticFinder(encoder.embed, encoder.width, similarity=0.8, ttl=60.0, clock=clock)
    yield made
    made.close()


async def test_a_question_in_other_words_finds_the_answer(finder: SemanticFinder) -> None:
    await finder.note(b"p", ASKED, b"key")
    assert await finder.find(b"p", SAME) == b"key"


async def test_a_near_question_that_asks_something_else_does_not(finder: SemanticFinder) -> None:
    await finder.note(b"p", "How do I enable 2FA?", b"enable")
    await finder.note(b"p", "What dose is right for a 20 kg child?", b"dose")
    assert await finder.find(b"p", "How do I disable 2FA?") is None
    assert await finder.find(b"p", "What dose is right for a 40 kg child?") is None


async def test_the_nearest_is_passed_over_if_it_asks_something_else(finder: SemanticFinder) -> None:
    await finder.note(b"p", "How do I reset my password in 2 steps?", b"steps")
    await finder.note(b"p", ASKED, b"key")
    assert await finder.find(b"p", "How can I reset my password?") == b"key"


async def test_a_question_of_another_partition_finds_nothing(finder: SemanticFinder) -> None:
    await finder.note(b"tenant a", ASKED, b"a")
    assert await finder.find(b"tenant b", ASKED) is None
    assert await finder.find(b"tenant b", SAME) is None
    await finder.note(b"tenant b", ASKED, b"b")
    assert await finder.find(b"tenant a", SAME) == b"a"
    assert await finder.find(b"tenant b", SAME) == b"b"


async def test_a_question_is_forgotten_with_its_answer(finder: SemanticFinder, clock: Clock) -> None:
    await finder.note(b"p", ASKED, b"key")
    clock.now = 59.0
    assert await finder.find(b"p", SAME) == b"key"
    clock.now = 60.0
    assert await finder.find(b"p", SAME) is None
    assert len(finder) == 0
    await finder.note(b"p", ASKED, b"again")
    await finder.forget(b"p", b"again")
    assert len(finder) == 0
    assert await finder.find(b"p", SAME) is None


async def test_long_texts_and_empty_ones_are_not_kept(finder: SemanticFinder) -> None:
    for text in ("", "Why? " * 40_000):
        await finder.note(b"p", text, b"key")
        assert await finder.find(b"p", text) is None
    assert len(finder) == 0


async def test_who_would_have_to_wait_long_goes_without(clock: Clock) -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    calls = 0

    def slow(texts: Sequence[str]) -> np.ndarray:
        nonlocal calls
        calls += 1
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(30)
        return np.ones((len(texts), 1), np.float32)

    finder = SemanticFinder(slow, 1, similarity=0.8, ttl=60.0, clock=clock)
    waiting = [asyncio.create_task(finder.find(b"p", f"text {number}")) for number in range(MAX_PENDING)]
    await asyncio.sleep(0)
    assert await finder.find(b"p", "one more") is None
    gate.set()
    assert await asyncio.gather(*waiting) == [None] * MAX_PENDING
    assert calls == MAX_PENDING
    finder.close()


def test_of_pairs_written_for_it_none_that_differs_is_accepted_and_half_of_the_others_are(
    encoder: Encoder,
) -> None:
    def hits(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        first, second = encoder.embed([a for a, _ in pairs]), encoder.embed([b for _, b in pairs])
        near = (first * second).sum(axis=1)
        return [
            pair for pair, likeness in zip(pairs, near, strict=True) if accept(*pair, float(likeness)).accept
        ]

    assert hits(DIFFERENT) == []
    assert len(hits(ALIKE)) >= 0.5 * len(ALIKE)


PAIRS = """a,b,label,kind
How do I reset my password?,How can I reset my password?,1,pos
How do I sharpen a knife?,Where do herons sleep?,1,pos
How do I enable 2FA?,How do I disable 2FA?,0,hard_neg
What is the price of tin?,What is the price of zinc?,0,hard_neg
Why is tea bitter?,How far is the moon?,0,rand_neg
"""


def test_eval_prints_the_shares_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(PAIRS)
    assert run(["cache", "eval", "--data", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pairs"] == 5
    assert found["similarity"] == 0.8
    assert found["paraphrases_hit"] == 0.5
    assert found["hard_negatives_accepted"] == 0.0
    assert found["precision"] == 1.0
    assert found["kinds"]["hard_neg"]["pairs"] == 2
    assert found["kinds"]["hard_neg"]["near_at"]["0.80"] >= 0.5  # likeness alone would have hit
    low, high = found["intervals"]["paraphrases_hit"]
    assert 0.0 < low < 0.5 < high < 1.0
    assert run(["cache", "eval", "--data", str(file), "--sweep", "--examples", "3"]) == 0
    shown = capsys.readouterr()
    assert "paraphrases hit" in shown.out
    assert "VERIFIED" in shown.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,kind\nx,y,pos\n", "no column 'label'"),
        ("a,b,label,kind\nx,y,maybe,pos\n", "Row 1 .* got 'maybe'"),
        ("a,b,label,kind\n", "has no pairs"),
        ("", "no column 'a'"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused_with_a_sentence(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_pairs(file)


def test_a_missing_file_and_one_of_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        read_pairs(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is no CSV file"):
        read_pairs(tmp_path / "bytes.csv")


def test_a_similarity_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(PAIRS)
    assert run(["cache", "eval", "--data", str(file), "--similarity", "2"]) == 2
    assert "--similarity must be from 0 to 1" in capsys.readouterr().err
