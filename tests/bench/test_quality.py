"""Perplexity of one precision against another, over pieces of a text."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from penstock.bench.quality import Reading, compare, cut, read
from penstock.bench.texts import english
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams, TokenEvent, TokenLogprobs
from penstock.errors import ConfigError, PenstockError
from tests.engine.engines import config_of
from tests.engine.tiny import save_tiny_llama

PIECES = [[random.Random(number).randrange(256) for _ in range(30 + number)] for number in range(6)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("quality"))


def token(chosen: float, *others: float) -> TokenLogprobs:
    """A place whose distribution is known whole."""
    probabilities = {0: chosen} | dict(enumerate(others, 1))
    ids = sorted(probabilities, key=lambda each: -probabilities[each])
    return TokenLogprobs(
        chosen=math.log(chosen), top_ids=ids, top=[math.log(probabilities[each]) for each in ids]
    )


@pytest.mark.parametrize("length", [2, 3, 9, 10, 11, 100, 101])
@pytest.mark.parametrize("first", [(), (7,)])
def test_a_text_is_cut_evenly_and_nothing_is_lost(length: int, first: tuple[int, ...]) -> None:
    ids = list(range(100, 100 + length))
    pieces = cut(ids, 10, first)
    assert all(tuple(piece[: len(first)]) == first for piece in pieces)
    own = [piece[len(first) :] for piece in pieces]
    assert [each for piece in own for each in piece] == ids
    assert max(map(len, pieces)) <= 10
    assert max(map(len, own)) - min(map(len, own)) <= 1
    assert min(map(len, pieces)) > 1, "a single token has nothing to score"


def test_a_text_or_context_too_short_to_score_is_refused() -> None:
    with pytest.raises(ConfigError, match="The text has 1 tokens"):
        cut([5], 512)
    with pytest.raises(ConfigError, match="context must be at least 3 tokens, got 2"):
        cut([5, 6, 7], 2, first=[1])


def test_pieces_are_read_as_the_engine_reads_prompts(model: Path) -> None:
    heard: list[int] = []
    reading = read(EngineCore(config_of(model)), "float32", PIECES, heard.append)
    assert sorted(reading.pieces) == list(range(6))
    assert (reading.tokens, sum(heard)) == (sum(map(len, PIECES)) - 6, sum(map(len, PIECES)))
    core = EngineCore(config_of(model))
    params = SamplingParams(max_tokens=0, prompt_logprobs=1)
    core.submit(Request(id="alone", prompt=PIECES[3], params=params))
    events: list[TokenEvent] = []
    while core.has_work:
        events += core.step()
    alone = [entry.chosen for entry in events[-1].prompt_logprobs]
    assert [entry.chosen for entry in reading.pieces[3]] == alone
    assert reading.perplexity([3]) == pytest.approx(math.exp(-sum(alone) / len(alone)))


def test_another_precision_differs_a_little_and_the_same_one_not_at_all(model: Path) -> None:
    exact, again, half = (
        read(EngineCore(config_of(model, precision=precision)), precision, PIECES)
        for precision in ("float32", "float32", "bfloat16")
    )
    same = compare(again, exact)
    assert same is not None
    assert (same.difference, same.low, same.high, same.absolute_difference) == (0, 0, 0, 0)
    assert (same.agreement, same.divergence) == (1, 0)
    other = compare(half, exact)
    assert other is not None
    assert 0 < other.absolute_difference < 0.1
    assert other.low is not None
    assert other.high is not None
    assert other.low < other.difference < other.high
    assert 0 < other.divergence < 0.01


def test_figures_are_those_of_the_formulas() -> None:
    reference = Reading("float32", {0: [token(0.5, 0.25, 0.25)], 1: [token(0.5, 0.3, 0.2)] * 2})
    chosen = Reading("int8", {0: [token(0.25, 0.5, 0.25)], 1: [token(0.5, 0.3, 0.2)] * 2})
    found = compare(chosen, reference)
    assert found is not None
    assert (found.tokens, found.pieces) == (3, 2)
    assert found.reference_perplexity == pytest.approx(2)
    assert found.difference == pytest.approx(2 ** (1 / 3) - 1)
    assert found.absolute_difference == pytest.approx(math.log(2) / 3)
    assert found.agreement == pytest.approx(2 / 3)
    # 0.5 log(0.5/0.25) + 0.25 log(0.25/0.5), in one of three places.
    assert found.divergence == pytest.approx(0.25 * math.log(2) / 3, abs=1e-6)
    # Student's t with one degree of freedom over the pieces' means, log 2 and 0.
    half = 12.706 * math.log(2) / 2
    assert (found.low, found.high) == (
        pytest.approx(math.expm1(math.log(2) / 2 - half)),
        pytest.approx(math.expm1(math.log(2) / 2 + half)),
    )


def test_one_piece_has_no_interval_and_none_no_figure() -> None:
    piece = {0: [token(0.5, 0.5)]}
    found = compare(Reading("int8", piece), Reading("float32", piece))
    assert found is not None
    assert (found.low, found.high) == (None, None)
    assert compare(Reading("int8", piece), Reading("float32", {})) is None


class Interrupted:
    """An engine whose user loses patience after some steps."""

    def __init__(self, core: EngineCore, steps: int) -> None:
        self._core, self._left = core, steps

    has_work = property(lambda self: self._core.has_work)

    def submit(self, request: Request) -> None:
        self._core.submit(request)

    def step(self) -> list[TokenEvent]:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._core.step()


def test_what_was_read_before_an_interruption_is_compared(model: Path) -> None:
    whole = read(EngineCore(config_of(model)), "float32", PIECES)
    part = read(Interrupted(EngineCore(config_of(model)), 4), "float32", PIECES)
    assert (whole.interrupted, part.interrupted) == (False, True)
    assert 0 < len(part.pieces) < 6
    found = compare(part, whole)
    assert found is not None
    assert (found.pieces, found.difference) == (len(part.pieces), 0)


def test_an_engine_that_fails_or_computes_nonsense_gives_no_figure(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    weights = load_file(model / "model.safetensors")
    weights["model.embed_tokens.weight"][PIECES[0][0]] = math.nan
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(PenstockError, match="a log-probability that is no finite number"):
        read(EngineCore(config_of(tmp_path)), "auto", PIECES)
    core = EngineCore(config_of(model))
    monkeypatch.setattr(core._runner, "launch", lambda plan: 1 / 0)
    with pytest.raises(PenstockError, match="The engine could not read the text"):
        read(core, "float32", PIECES)


def test_the_built_in_text_has_a_few_thousand_words() -> None:
    words = english().split()
    assert 2000 < len(words) < 4000
    assert len(set(words)) > 900, "varied"
