"""What a precision costs: perplexity of a text and greedy answers, against float32 on the same weights."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from penstock.bench.quality import Reading, compare, cut, read
from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams

CONTEXT = 512  # tokens of a piece
PROMPTS, PROMPT, ANSWER = 20, 32, 64  # greedy answers: how many, and their tokens


@dataclass(frozen=True, slots=True)
class Way:
    precision: str
    kv_precision: str = "auto"

    @property
    def name(self) -> str:
        return self.precision if self.kv_precision == "auto" else f"{self.precision}, KV {self.kv_precision}"


ON_GPU = (Way("float32"), Way("bfloat16"), Way("bfloat16", "fp8"), Way("fp8"), Way("fp8", "fp8"))
ON_CPU = (Way("float32"), Way("bfloat16"))


def tokens_of(model: str) -> list[int]:
    """The built-in English text as the model's tokens. The other parts of this need no tokenizer."""
    from penstock.bench.texts import english
    from penstock.hub import resolve
    from penstock.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(resolve(model))
    return tokenizer.encode(english(), parse_special=False, add_bos=False)


def measure(
    path: str, tokens: Sequence[int], device: str, say: Callable[[str], None], *, most: int = 32
) -> list[dict[str, Any]]:
    """Of each way what it costs against the first, on at most `most` pieces of the text."""
    found: list[dict[str, Any]] = []
    reference: tuple[Reading, list[list[int]]] | None = None
    for way in ON_CPU if device == "cpu" else ON_GPU:
        say(f"accuracy: {way.name}")
        core = EngineCore(
            EngineConfig(
                model=path,
                device=device,
                precision=way.precision,
                kv_precision=way.kv_precision,
                max_model_len=2 * CONTEXT,
                max_running=64,
                kv_cache_memory=4 << 30 if device != "cpu" else 256 << 20,
            )
        )
        reading = read(core, way.name, cut(tokens, CONTEXT)[:most])
        answers = greedy(core, tokens)
        del core
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()
        if reference is None:
            reference = reading, answers
        quality = compare(reading, reference[0])
        assert quality is not None
        equal = [_equal(ours, theirs) for ours, theirs in zip(answers, reference[1], strict=True)]
        found.append(
            {
                "way": way.name,
                **asdict(quality),
                "greedy_equal_tokens": equal,
                "greedy_answers_equal": sum(count == ANSWER for count in equal),
                "greedy_tokens": ANSWER,
            }
        )
    return found


def greedy(core: EngineCore, tokens: Sequence[int]) -> list[list[int]]:
    """Answers to pieces of the text."""
    room = max(len(tokens) - PROMPT, 1)
    made: dict[str, list[int]] = {}
    for number in range(PROMPTS):
        start = number * room // PROMPTS
        params = SamplingParams(max_tokens=ANSWER, temperature=0.0, ignore_eos=True)
        core.submit(Request(id=str(number), prompt=list(tokens[start : start + PROMPT]), params=params))
        made[str(number)] = []
    while core.has_work:
        for event in core.step():
            if event.error is not None:
                raise RuntimeError(event.error)
            made[event.request_id] += event.token_ids
    return list(made.values())


def _equal(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Tokens until they part."""
    pairs = zip(ours, theirs, strict=True)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(ours))


def read_tokens(file: Path) -> list[int]:
    ids: list[int] = json.loads(file.read_text())
    return ids
