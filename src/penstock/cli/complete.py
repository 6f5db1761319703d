"""`penstock complete`: one prompt in, its continuation out."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from penstock.cli.options import ENGINE_OPTIONS, configured, examples
from penstock.cli.sampling import ApiKey, MaxTokens, Seed, Stop, Temperature, TopP, Url
from penstock.config import Settings
from penstock.engine.request import SamplingParams
from penstock.errors import InvalidRequestError

EPILOG = examples(
    ('penstock complete "The capital of France is" -n 16 -t 0', "greedy, 16 tokens"),
    ("cat notes.txt | penstock complete --json", "the prompt from stdin, the answer as JSON"),
    ('penstock complete "Once upon" --url http://127.0.0.1:8000', "by a running server"),
)


@configured(*ENGINE_OPTIONS, model="option")
def complete(
    settings: Settings,
    named: str | None,
    prompt: Annotated[
        str | None, typer.Argument(help="The text to continue; read from stdin when left out or '-'.")
    ] = None,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when the answer is complete.")
    ] = False,
) -> None:
    """Continue a text, without a chat template."""
    from penstock.cli.sources import Answer, open_source

    params = SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=tuple(stop or ())
    )
    text = sys.stdin.read() if prompt in (None, "-") else prompt
    if not text:
        raise InvalidRequestError("The prompt is empty; give it as an argument or on stdin.")
    answer = Answer()
    with open_source(settings, url, api_key, named=named) as source:
        pieces = []
        for piece in source.stream(text, params, answer):
            pieces.append(piece)
            if not as_json:
                print(piece, end="", flush=True)
        if as_json:
            result = {
                "model": source.name,
                "prompt": text,
                "text": "".join(pieces),
                "finish_reason": answer.finish_reason,
                "usage": {
                    "prompt_tokens": answer.prompt_tokens,
                    "completion_tokens": answer.completion_tokens,
                },
            }
            print(json.dumps(result, ensure_ascii=False))
        elif sys.stdout.isatty() or not "".join(pieces).endswith("\n"):
            print()
