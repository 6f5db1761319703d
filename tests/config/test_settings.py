"""The catalogue of options is complete, and the documentation is read off it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from penstock.config import SECTIONS, Settings, options, options_table, section_table
from penstock.engine.config import EngineConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_every_engine_option_is_a_setting_with_the_same_default() -> None:
    settings = {field.name: field.default for field in dataclasses.fields(Settings)}
    for field in dataclasses.fields(EngineConfig):
        if field.name != "model":
            assert settings[field.name] == field.default, field.name


def test_the_engine_gets_its_share_of_the_settings() -> None:
    config = Settings(max_running=3, prefix_caching=False, threads=1).engine_config("a.gguf")
    assert config == EngineConfig(model="a.gguf", max_running=3, prefix_caching=False, threads=1)


def test_no_two_options_share_a_spelling() -> None:
    flags = [flag for option in options().values() for flag in option.flags]
    assert len(flags) == len(set(flags))


def test_the_documented_table_is_the_catalogue() -> None:
    assert options_table() in DOCUMENT.read_text(encoding="utf-8"), (
        "Replace the table in docs/configuration.md by the output of "
        "`python -c 'from penstock.config import options_table; print(options_table())'`."
    )


def test_the_documented_sections_are_the_catalogue() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for place, section in SECTIONS.items():
        assert section_table(section) in text, (
            f"Replace the table of {place} in docs/configuration.md by the output of `python -c "
            "'from penstock.config import *; [print(p, section_table(s)) for p, s in SECTIONS.items()]'`."
        )
