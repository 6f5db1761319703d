"""What is in a wheel, and what the page may load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.observe import console

ROOT = Path(__file__).resolve().parents[2]


def test_a_wheel_has_every_file_of_the_page() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="only an install from source needs it")
    included = {file.relative_path for file in wheel.WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"src/penstock/observe/console/{name}" for name in console.files()} <= included


def test_the_page_and_its_modules_load_files_that_are_here_and_nothing_else() -> None:
    files = console.files()
    found = set()
    for name, (content, _) in files.items():
        text = content.decode()
        found |= set(re.findall(r'(?:src|href)="console/([^"]+)"', text))
        found |= set(re.findall(r'from "\./([^"]+)"', text))
        elsewhere = re.sub("http://www.w3.org/2000/svg", "", text)
        assert not re.search(r"https?:|//\w+\.\w+/|@import|url\(", elsewhere), name
    assert found | {console.INDEX} == set(files)


def test_nothing_reaches_the_page_as_markup() -> None:
    markup = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    )
    for name, (content, _) in console.files().items():
        assert not markup.search(content.decode()), name
    index = console.files()[console.INDEX][0].decode()
    assert not re.search(r"<script(?! type=\"module\" src=)|\son\w+=|style=|javascript:", index)
