"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from penstock.config import examine
from penstock.config.checks import warnings_of
from penstock.config.litellm import convert
from penstock.gateway.backends.presets import PATHS, PRESETS
from penstock.gateway.backends.registry import SERVERS
from penstock.protocol import fields
from penstock.protocol.chat import ChatCompletionRequest
from penstock.protocol.completion import CompletionRequest
from penstock.protocol.embeddings import EMBEDDINGS, EmbeddingRequest
from penstock.protocol.openapi import OPERATIONS
from penstock.protocol.rerank import RERANK, RerankRequest
from penstock.protocol.score import SCORE, ScoreRequest

ROOT = Path(__file__).parents[1]
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
GATEWAY = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]


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


def anchors(document: Path) -> set[str]:
    """What can be linked to, as GitHub makes it from headings."""
    titles = re.findall(r"(?m)^#+ (.*)$", document.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            other = document.parent / target if target else document
            assert other.exists(), target
            assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def configurations() -> list[tuple[str, str]]:
    return [
        (document.name, block.split("\n```")[0] + "\n")
        for document in DOCUMENTS
        for block in document.read_text(encoding="utf-8").split("\n```yaml\n")[1:]
    ]


@pytest.mark.parametrize(
    ("document", "text"),
    [pytest.param(*each, id=f"{each[0]}-{n}") for n, each in enumerate(configurations())],
)
def test_every_configuration_that_a_document_shows_can_be_served(
    document: str, text: str, tmp_path: Path
) -> None:
    content = yaml.safe_load(text)
    if "model_list" in content:
        text = convert(content, "config.yaml").text
    elif "backends" in content:  # of some model
        text = "models:\n  chat:\n" + "".join(f"    {line}\n" for line in text.splitlines())
    file = tmp_path / "penstock.yaml"
    file.write_text(text, encoding="utf-8")
    examined = examine(config=file, environ=dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x"))
    assert examined.problems == ()
    assert examined.settings is not None
    assert list(warnings_of(examined.settings)) == []


def test_the_table_of_backends_says_what_is_known_of_each_kind() -> None:
    rows = {row.split("`")[1]: row for row in GATEWAY.splitlines() if row.startswith("| `")}
    assert {"engine", *SERVERS} <= set(rows)
    for kind, preset in PRESETS.items():
        _, _, endpoints, health, load, capacity, *_ = (cell.strip() for cell in rows[kind].split("|"))
        assert endpoints.startswith("all") == (len(preset.operations) >= len(PATHS) - 1), kind
        assert health == ("not probed" if preset.health is None else f"`{preset.health.decode()}`"), kind
        assert re.findall("`(/.*?)`", load) == [path.decode() for path, _ in preset.load], kind
        assert capacity == f"{preset.capacity:,}", kind
