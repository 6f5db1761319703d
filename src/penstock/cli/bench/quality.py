"""`penstock bench quality`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.bench.common import Html, Json, check_writable, progress, publish, published_command
from penstock.cli.options import ENGINE_OPTIONS, configured, engine_options, examples
from penstock.cli.pull import fetched
from penstock.config import Settings
from penstock.engine.config import PRECISIONS
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.quality import Reading

EPILOG = examples(
    ("penstock bench quality", "what the default precision costs, against float32"),
    ("penstock bench quality --precision bfloat16 --limit 0.5", "another one, with a stricter limit"),
    ("penstock bench quality --text mine.txt --json quality.json", "on a text of one's own"),
)
CONTEXT = 512  # tokens of a piece at most


@configured(*ENGINE_OPTIONS)
def quality(
    settings: Settings,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="FILE", help="A text of your own, UTF-8.", show_default="built in"),
    ] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="PRECISION", help="The precision to compare with.")
    ] = "float32",
    context: Annotated[
        int, typer.Option("--context", metavar="N", min=2, help="Tokens read in one piece, at most.")
    ] = CONTEXT,
    limit: Annotated[
        float,
        typer.Option(
            "--limit", metavar="PERCENT", min=0, help="The status is 1 if perplexity grows by more."
        ),
    ] = 1.0,
    json_path: Json = None,
    html_path: Html = None,
) -> None:
    """Measure what a precision costs: the perplexity of a text, against that of float32."""
    if against not in PRECISIONS:
        raise ConfigError(f"--against must be one of {', '.join(PRECISIONS)}, got {against!r}.")
    name, words = _text(text)
    check_writable(json_path, html_path)
    from penstock.bench.quality import compare
    from penstock.bench.quality_report import quality_fields
    from penstock.bench.report import frame

    files = fetched(settings.model)
    readings: list[Reading] = []
    for precision in (settings.precision, against):
        print(f"Loading {files.name} ({precision}) ...", file=sys.stderr)
        readings.append(_read(str(files.path), replace(settings, precision=precision), words, context))
        if readings[-1].interrupted:
            break
    found = compare(*readings) if len(readings) == 2 else None
    subject = {"model": files.name, "text": name, "context": context}
    content = frame("quality", published_command(), subject, None)
    content |= quality_fields(found, readings, limit / 100)
    publish(content, json_path, html_path)
    if readings[-1].interrupted:
        raise KeyboardInterrupt
    if not content["within"]:
        raise typer.Exit(1)


def _text(path: str | None) -> tuple[str, str]:
    """What the text is called in the report, and the text."""
    if path is None:
        from penstock.bench.texts import english

        return "the built-in English text", english()
    try:
        return Path(path).name, Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--text names {path}, which cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--text names {path}, which is not UTF-8 text; convert it first.") from None


def _read(path: str, settings: Settings, words: str, context: int) -> Reading:
    from penstock.bench.quality import cut, read
    from penstock.llm import LLM

    with LLM(path, **engine_options(settings)) as llm:
        info = llm.engine.info
        if "generate" not in info.tasks:
            raise ConfigError(f"{llm.name} gives no text, so it has no perplexity; choose another model.")
        ids = llm.tokenizer.encode(words, parse_special=False, add_bos=False)
        pieces = cut(ids, min(context, info.max_model_len), llm.tokenizer.encode(""))
        with progress(f"Reading in {info.precision}", sum(map(len, pieces))) as tick:
            return read(llm.engine, info.precision, pieces, tick)
