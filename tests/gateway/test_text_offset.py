"""`text_offset` points at each token's place in the answer's text, whatever the vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from penstock.engine.config import EngineInfo
from penstock.engine.request import Request, TokenEvent, TokenLogprobs
from penstock.gateway.local.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.text.tokenizer import Tokenizer
from tests.backends import InstantBackend, ask, gateway_of
from tests.text.vocabularies import folder, load


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load(folder(), "llama-spm")


def gateway(tokenizer: Tokenizer, answer: list[int]) -> Gateway:
    def reply(request: Request) -> Iterator[TokenEvent]:
        scores = [TokenLogprobs(-1.0, [], [], 1)] * (len(request.prompt) - 1)
        for place, token in enumerate(answer):
            yield TokenEvent(
                request_id=request.id,
                token_ids=[token],
                logprobs=[TokenLogprobs(-1.0, [], [], 1)],
                prompt_logprobs=[] if place else scores,
                finish_reason="length" if place == len(answer) - 1 else None,
            )

    info = EngineInfo(
        architecture="llama", device="cpu", precision="float32", quantization="none",
        vocab_size=tokenizer.vocab_size, max_model_len=512, max_running=8, max_step_tokens=512, block_size=16,
        num_blocks=512, weight_bytes=1, load_seconds=0.0,
    )  # fmt: skip
    return gateway_of(ServedModel(("m",), tokenizer, info), InstantBackend(info, reply))


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("prompt", ["", "Every gate"], ids=["behind a control token", "behind text"])
@pytest.mark.parametrize("text", ["Hello big world", "\nHello world", " of"])
async def test_the_text_at_each_offset_begins_with_its_token(
    tokenizer: Tokenizer, prompt: str, text: str, echo: bool
) -> None:
    body = {
        "prompt": tokenizer.encode(prompt, add_bos=True), "max_tokens": 8, "logprobs": 0, "echo": echo,
        "skip_special_tokens": False,
    }  # fmt: skip
    answer = await ask(gateway(tokenizer, tokenizer.encode(text, add_bos=False)), "createCompletion", body)
    [choice] = json.loads(answer)["choices"]
    scores = choice["logprobs"]
    own = scores["tokens"][-len(tokenizer.encode(text, add_bos=False)) :]
    places = scores["text_offset"][-len(own) :]
    assert choice["text"][places[0] :].startswith(own[0].lstrip(" ") if not prompt else own[0])
    for token, place in zip(own[1:], places[1:], strict=True):
        assert choice["text"][place:].startswith(token)
    assert len(choice["text"]) == places[-1] + len(own[-1]) - (len(own) == 1 and not prompt)
