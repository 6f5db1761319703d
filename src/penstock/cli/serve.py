"""`penstock serve`: a model behind the OpenAI-compatible API."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from penstock.cli.options import ENGINE_OPTIONS, SERVER_OPTIONS, configured, examples
from penstock.config import Settings, models_of
from penstock.errors import ConfigError

EPILOG = examples(
    ("penstock serve", "the default model on 127.0.0.1:8000"),
    ("penstock serve ./model.gguf --port 9000 --max-model-len 4K", "a local file, a shorter context"),
    ("penstock serve org/name --served-model-name chat --api-key $KEY --host 0.0.0.0", "for other machines"),
    ("PENSTOCK_MAX_RUNNING=32 penstock serve --config penstock.yaml", "flags > environment > file"),
)


@configured("served_model_names", "chat_template", "reasoning_parser", *SERVER_OPTIONS, *ENGINE_OPTIONS)
def serve(
    settings: Settings,
    reread: Callable[[], Settings],
    chunked_prefill: Annotated[
        bool,
        typer.Option(
            "--enable-chunked-prefill/--no-enable-chunked-prefill",
            help="Accepted for vLLM's sake: prompts are always computed in chunks.",
            hidden=True,
        ),
    ] = True,
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="vLLM's name for --without graphs.", hidden=True)
    ] = False,
) -> None:
    """Serve a model over HTTP, with the API that OpenAI clients speak."""
    if not chunked_prefill:
        raise ConfigError(
            "--no-enable-chunked-prefill is not supported: prompts are always computed in chunks, so that a "
            "long one never stalls running answers; raise --max-num-batched-tokens for longer chunks."
        )
    if enforce_eager:
        read, settings = reread, _without_graphs(settings)
        reread = lambda: _without_graphs(read())  # noqa: E731
    engines = any(backend.kind == "engine" for model in models_of(settings) for backend in model.backends)
    if engines and importlib.util.find_spec("torch") is None:
        # Found out here, and not by the engine's process: it could only leave a traceback.
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    from penstock.gateway.server import run

    run(settings, reread)


def _without_graphs(settings: Settings) -> Settings:
    return replace(settings, without=(*settings.without, "graphs"))
