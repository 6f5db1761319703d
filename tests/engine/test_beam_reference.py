"""Beam search through the engine against transformers, on a small random model whose answers end often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.engine.beam import BeamRequest, BeamSearchParams
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, TokenEvent
from tests.engine.engines import config_of
from tests.engine.tiny import save_tiny_llama

transformers = pytest.importorskip("transformers")

PROMPTS = [[3, 1, 4, 1, 5], [200], [9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6], [77, 13, 250]]
ENDS = tuple(range(0, 256, 9))
TOKENS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> EngineCore:
    return EngineCore(config_of(folder, precision="float32", max_running=8, max_waiting=64))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def ours(engine: EngineCore, prompt: list[int], params: BeamSearchParams) -> list[TokenEvent]:
    beams = BeamRequest(Request(id="beams", prompt=prompt, eos_token_ids=ENDS), params, context=256)
    while not beams.done:
        requests = beams.round()
        for request in requests:
            engine.submit(request)
        events: dict[str, TokenEvent] = {}
        while engine.has_work:
            events.update({event.request_id: event for event in engine.step()})
        beams.take([events[request.id] for request in requests])
    return beams.events()


def theirs(model: Any, prompt: list[int], params: BeamSearchParams) -> list[list[int]]:
    with torch.no_grad():
        found = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            num_beams=params.beam_width,
            num_return_sequences=params.beam_width,
            do_sample=False,
            max_new_tokens=params.max_tokens,
            length_penalty=params.length_penalty,
            early_stopping=params.early_stopping,
            eos_token_id=list(ENDS),
            pad_token_id=255,
        )
    answers = []
    for row in found[:, len(prompt) :].tolist():
        end = next((at for at, token in enumerate(row) if token in ENDS), len(row) - 1)
        answers.append(row[: end + 1])
    return answers


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.5, -1.0])
@pytest.mark.parametrize("width", [2, 5])
def test_every_hypothesis_is_that_of_transformers(
    engine: EngineCore, reference: Any, width: int, length_penalty: float, early_stopping: Any
) -> None:
    params = BeamSearchParams(
        beam_width=width, max_tokens=TOKENS, length_penalty=length_penalty, early_stopping=early_stopping
    )
    for prompt in PROMPTS:
        events = ours(engine, prompt, params)
        assert [event.token_ids for event in events] == theirs(reference, prompt, params), prompt
        for event in events:
            assert event.finish_reason == ("stop" if event.token_ids[-1] in ENDS else "length")
    engine.check()


def test_a_round_computes_little_beyond_one_token_of_each_beam(engine: EngineCore) -> None:
    """What a beam shares with those before it comes from the prefix cache, block by block."""
    prompt = list(range(1, 161))
    params = BeamSearchParams(beam_width=4, max_tokens=16, ignore_eos=True)
    before = engine.stats()
    ours(engine, prompt, params)
    after = engine.stats()
    queries = after.prefix_queries - before.prefix_queries
    computed = queries - (after.prefix_hits - before.prefix_hits)
    assert computed <= len(prompt) + 15 * 4 * 2 * 16
    assert queries > 10 * computed / 4
