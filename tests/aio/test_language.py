"""Telling languages apart."""

from __future__ import annotations

import pytest

from penstock.aio.language import language


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("What is the capital of France, and how many people live there?", "en"),
        ("Was ist die Hauptstadt von Frankreich und wie viele Menschen leben dort?", "de"),
        ("Quelle est la capitale de la France et pourquoi ?", "fr"),
        ("¿Cuál es la capital de Francia y por qué es famosa?", "es"),
        ("Qual é a capital da França e por que não é outra?", "pt"),
        ("Какая столица Франции?", "ru"),
        ("フランスの首都はどこですか", "ja"),
        ("法国的首都是哪里？", "zh"),
        ("프랑스의 수도는 어디입니까?", "ko"),
        ("ما هي عاصمة فرنسا؟", "ar"),
        ("", ""),
        ("12345 + 678", ""),
        ("xyzzy", ""),
    ],
)
def test_a_language_is_named_where_one_can_tell(text: str, code: str) -> None:
    assert language(text) == code
