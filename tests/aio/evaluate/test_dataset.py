"""Files of outcomes, well-formed and otherwise."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from penstock.aio.evaluate.dataset import priced, read_dataset
from penstock.aio.evaluate.keys import question_key
from penstock.aio.evaluate.models import canonical, cost_of
from penstock.errors import ConfigError


def written(folder: Path, text: str, name: str = "some.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_say_what_they_are_whatever_the_file_is_called(tmp_path: Path) -> None:
    text = (
        "id,category,question,options,big-70B|ok,big-70B|outchars,small-8B|ok,small-8B|pred\n"
        '1,law,"Is it, so?","[""yes"", ""no""]",1,10,0,x\n'
        "2,art,Why?,,,10,True,x\n"
    )
    data = read_dataset(written(tmp_path, text, "anything.txt"))
    assert data.models == ("small-8b", "big-70b")
    assert data.cost.tolist() == [8.0, 70.0]
    assert data.groups == ["law", "art"]
    assert data.texts[0] == "Is it, so?\nA. yes\nB. no"
    assert data.ok[0].tolist() == [0.0, 1.0]
    assert data.ok[1, 0] == 1.0
    assert np.isnan(data.ok[1, 1])


def test_bare_outcomes_and_whole_answers_are_found_beside_each_other(tmp_path: Path) -> None:
    text = (
        "prompt,a/Small-7B,a/Big-70B,a/Small-7B_response,a/Big-70B_response\nHow many?,True,False,two,three\n"
    )
    data = read_dataset(written(tmp_path, text))
    assert data.models == ("small-7b", "big-70b")
    assert data.answers == {"small-7b": ["two"], "big-70b": ["three"]}
    assert data.ok.tolist() == [[1.0, 0.0]]


def test_compressed_files_and_logs_of_lines_are_read(tmp_path: Path) -> None:
    lines = (
        '{"query": "One?", "outcomes": {"small": 0.5, "expert": 1}, "cost": {"small": 1, "expert": 20}}\n'
        '\n{"query": "Two?", "outcomes": {"expert": true}, "cost": {"expert": 40}, "group": "maths"}\n'
    )
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    data = read_dataset(path)
    assert data.models == ("small", "expert")
    assert data.cost.tolist() == [1.0, 30.0]  # the mean of what was paid
    assert data.groups == ["", "maths"]
    assert np.isnan(data.ok[1, 0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("question,a|ok,b|ok\n", "no rows"),
        ("id,a|ok,b|ok\n1,1,0\n", "has no column prompt, question, query or text"),
        ("question,a|ok\nWhy?,1\n", "outcomes of at least two models"),
        ("question,a|ok,b|ok\nWhy?,1,maybe\n", "line 2: b|ok must be a number from 0 to 1"),
        ("question,a|score,b|score\nWhy?,1,7\n", "got '7'"),
        ('{"query": "One?"}\n', "line 1: Object missing required field `outcomes`"),
        ('{"query": "One?", "outcomes": {"a": 1}}\n{"query"\n', "line 2"),
        ('question,a|ok,b|ok\n"Why?,1,0\n', "is not a CSV file"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"some\.csv") as found:
        read_dataset(written(tmp_path, text))
    assert said in str(found.value)


def test_bytes_that_are_no_text_a_folder_and_no_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff\xfe\x00")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"question,a|ok,b|ok\nWhy?,1,0\n" * 50)[:-20])
    for name, said in (
        ("picture", "is not text"),
        ("", "is a folder"),
        ("none", "no file"),
        ("cut.gz", "read"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_dataset(tmp_path / name)


def test_one_question_has_one_key_however_it_is_dressed() -> None:
    plain = "Which  planet is the largest one?"
    dressed = "Question: Which planet is the largest one?\nA. Mars\nB. Jupiter\nAnswer:"
    assert question_key(plain) == question_key(dressed) == question_key(plain.upper())
    assert question_key("Which planet is the smallest one?") != question_key(plain)
    assert question_key("Choose:\nA. one\nB. two") != question_key("Choose:\nA. three\nB. four")


@pytest.mark.parametrize(
    ("spelled", "name", "cost"),
    [
        ("Meta-Llama-3_1-8B-Instruct", "Llama-3.1-8B", 8.0),
        ("Llama-3.1-405B-Inst@sambanova", "Llama-3.1-405B", 405.0),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b", 46.7),
        ("gemini-1.5-pro-002", "gemini-1.5-pro", 140.0),
        ("gpt-4-1106-preview", "gpt-4-1106", 560.0),
        ("Phi-3-mini-4k-instruct", "Phi-3-mini", 3.8),
        ("qwen2.5-7b-instruct", "qwen2.5-7b", 7.0),
        ("somebody's", "somebody's", None),
    ],
)
def test_a_model_has_one_name_in_all_files(spelled: str, name: str, cost: float | None) -> None:
    assert canonical(spelled) == name
    assert cost_of(canonical(spelled)) == cost


def test_models_without_a_known_price_are_ordered_by_quality_and_that_is_said(tmp_path: Path) -> None:
    data = read_dataset(written(tmp_path, "question,good|ok,bad|ok\nOne?,1,0\nTwo?,1,1\n"))
    assert data.models == ("bad", "good")
    assert "No price is known for good, bad" in data.warnings[0]
    assert priced(data, {"good": 1.0, "bad": 3.0}).models == ("good", "bad")
    with pytest.raises(ConfigError, match="no model 'best'"):
        priced(data, {"best": 1.0})


def test_a_ladder_is_the_known_one_or_the_models_that_no_cheaper_one_outdoes(tmp_path: Path) -> None:
    rows = "question,a-1b|ok,b-2b|ok,c-3b|ok,d-4b|ok\n" + "".join(
        f"Number {row}?,{int(row < 3)},{int(row < 2)},{int(row < 6)},{int(row < 9)}\n" for row in range(10)
    )
    data = read_dataset(written(tmp_path, rows))
    assert data.ladder().models == ("a-1b", "c-3b", "d-4b")  # b costs more than a and is worse
