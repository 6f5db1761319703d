"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from penstock.protocol import fields
from penstock.protocol.chat import ChatCompletionRequest
from penstock.protocol.completion import CompletionRequest
from penstock.protocol.embeddings import EMBEDDINGS, EmbeddingRequest
from penstock.protocol.openapi import OPERATIONS
from penstock.protocol.rerank import RERANK, RerankRequest
from penstock.protocol.score import SCORE, ScoreRequest

ROOT = Path(__file__).parents[1]
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return API.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_path_of_the_api_is_documented() -> None:
    endpoints = section("Endpoints")
    for operation in OPERATIONS:
        assert f"{operation.method.upper()} {operation.path}`" in endpoints


def test_every_obeyed_field_is_documented() -> None:
    text = section("Fields that are obeyed")
    for struct in (ChatCompletionRequest, CompletionRequest):
        for field in msgspec.structs.fields(struct):
            assert f"`{field.name}`" in text, field.name


@pytest.mark.parametrize("table", [fields.CHAT, fields.COMPLETION])
def test_every_ignored_and_every_refused_field_is_documented_as_such(table: tuple[fields.Field, ...]) -> None:
    ignored, refused = section("Fields that are ignored"), section("Fields that are refused")
    for field in table:
        where, other = (ignored, refused) if isinstance(field, fields.Ignored) else (refused, ignored)
        assert f"`{field.name}`" in where, field.name
        assert f"`{field.name}`" not in other, field.name


@pytest.mark.parametrize(
    ("struct", "table"),
    [(EmbeddingRequest, EMBEDDINGS), (RerankRequest, RERANK), (ScoreRequest, SCORE)],
)
def test_every_field_of_embeddings_rerank_and_score_is_documented(
    struct: type[msgspec.Struct], table: tuple[fields.Field, ...]
) -> None:
    text = section("Embeddings, rerank and score")
    rows, _, rest = text.partition("\nIgnored: ")
    ignored, _, refused = rest.partition("Refused: ")
    for field in msgspec.structs.fields(struct):
        assert f"`{field.name}`" in rows, field.name
    for known in table:
        assert f"`{known.name}`" in (ignored if isinstance(known, fields.Ignored) else refused), known.name


@pytest.mark.parametrize(
    "document", [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))], ids=lambda path: path.name
)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target
