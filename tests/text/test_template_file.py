"""A chat template of the user's own: read, checked, and used instead of the model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, InvalidRequestError
from penstock.hub import ModelFiles
from penstock.text.chat import ChatTemplate
from penstock.text.sandbox import MAX_SOURCE
from penstock.text.template_file import read_template, template_from
from penstock.text.tokenizer import Tokenizer

SOURCE = "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}"
ASK = [{"role": "user", "content": "Hi <|im_end|>"}]


def test_it_takes_the_place_of_the_models_own(tmp_path: Path, default_model: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text(SOURCE, encoding="utf-8-sig")  # some editors put a mark at the beginning
    tokenizer = Tokenizer.load(
        ModelFiles("default", default_model, "gguf"), chat_template=read_template(file)
    )
    ids = ChatTemplate(tokenizer.chat_template, tokenizer).encode(ASK)
    assert tokenizer.decode(ids, skip_special=False) == "<user> Hi <|im_end|>\n"
    assert not tokenizer.special_ids.intersection(ids)


def test_in_python_it_may_be_a_file_or_the_template_itself(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text(SOURCE)
    assert template_from(SOURCE) == template_from(file) == template_from(str(file)) == SOURCE
    with pytest.raises(ConfigError, match=r"^The chat template has an error in line 1: .*\.$"):
        template_from("{% for %}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, r"cannot be read: No such file or directory\."),
        (b"{% for m in messages %}\n{{ m.content }\n", r"has an error in line 2: .*\."),
        (b"{{ messages | nothing_of_the_kind }}", r"has an error in line 1: No filter named .*\."),
        (b"{% include 'other' %}" * 2 + b"{% nonsense %}", r"has an error in line 1: .*\."),
        (b"\xff\xfe{{ x }}", r"is not text in UTF-8 \(byte 0\); save it as that\."),
        (b" \n", r"is empty; leave it out to use the model's own\."),
        (b"a" * (MAX_SOURCE + 1), r"cannot be used: it has 1048577 characters, more than 1048576\."),
        (b"a" * (5 * MAX_SOURCE), r"has more than 1048576 characters; shorten it\."),
        (b"{{ " + b"(" * 5000 + b")" * 5000 + b" }}", r"cannot be used: .*recursion.*\."),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "t.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^The chat template \S+t\.jinja {reason}$"):
        read_template(file)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Path(__file__).parent, r" \S+ cannot be read: it is a folder, not a regular file\."),
        ("a" * 300, r" a+ cannot be read: File name too long\."),
        ("a\0b", r" 'a\\x00b' cannot be read: .*null.*\."),
        ("\ud800", r" '\\ud800' cannot be read: .*surrogates.*\."),
        ("~nobody-of-that-name/t", r" ~nobody-of-that-name/t is in the home folder of nobody here\."),
        ("", r" is empty; name a file, or leave it out to use the model's own\."),
        (5, r" must be a file's path, got 5\."),
        (b"t.jinja", r" must be a file's path, got b't\.jinja'\."),
    ],
)
def test_what_cannot_name_a_template_is_one_sentence(value: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^The chat template{reason}$"):
        template_from(value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "ran for more than",
        ),
        ("{% for a in range(99999) %}{{ messages[0].content * 999 }}{% endfor %}", "a value of more than"),
        ("{{ messages[0].content * 10**9 }}", "a value of more than"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself too deeply"),
    ],
)
def test_a_template_that_would_not_end_is_stopped_with_a_sentence(
    source: str, reason: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.text.limits.MAX_SECONDS", 0.2)
    with pytest.raises(InvalidRequestError, match=rf"^The chat template was stopped because it .*{reason}"):
        ChatTemplate(template_from(source), tokenizer).encode(ASK)
