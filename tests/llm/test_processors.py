"""Users' own functions on the logits: as functions, by entry point, by module and attribute."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from penstock.errors import InvalidRequestError, PenstockError
from penstock.llm.processors import find_processors

CODE = """
calls = []
not_a_function = 5


class Holder:
    @staticmethod
    def keep(prompt, output, logits):
        return logits


def only_commas(prompt, output, logits):
    calls.append((list(prompt), list(output)))
    kept = logits[28].clone()
    logits[:] = float("-inf")
    logits[28] = kept
    return logits
"""
ENTRY_POINTS = """[penstock.logits_processors]
commas = tiny_processors:only_commas
broken = tiny_processors:missing
number = tiny_processors:not_a_function
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An installed package, as far as Python can tell: its code and its metadata are on the path."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "tiny_processors.py").write_text(CODE)
    metadata = folder / "tiny_processors-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-processors\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.insert(0, str(folder))
    import tiny_processors  # type: ignore[import-not-found]

    yield tiny_processors
    sys.path.remove(str(folder))
    del sys.modules["tiny_processors"]


@pytest.fixture(scope="module")
def llm(default_model: Path) -> Iterator[LLM]:
    with LLM(str(default_model), max_model_len=256, kv_cache_memory=64 << 20) as model:
        yield model


PARAMS = SamplingParams(temperature=0.0, max_tokens=3)


def test_a_processor_sees_prompt_and_output_and_decides(llm: LLM, package: Any) -> None:
    package.calls.clear()
    [output] = llm.generate([[1, 2, 3]], PARAMS, logits_processors=[package.only_commas])
    assert output.outputs[0].text == ",,,"
    assert package.calls == [([1, 2, 3], []), ([1, 2, 3], [28]), ([1, 2, 3], [28, 28])]


def test_an_installed_entry_point_is_found_by_its_name(llm: LLM, package: Any) -> None:
    assert llm.generate("Hello", PARAMS, logits_processors=["commas"])[0].outputs[0].text == ",,,"


def test_any_function_is_found_by_module_and_attribute(llm: LLM, package: Any) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    named = ["tiny_processors:Holder.keep", "tiny_processors:only_commas"]
    assert llm.chat(messages, PARAMS, logits_processors=named)[0].outputs[0].text == ",,,"
    chunks = list(llm.stream("Hello", PARAMS, logits_processors=named))
    assert "".join(chunk.text for chunk in chunks) == ",,,"


def test_only_the_requests_that_asked_are_changed(llm: LLM, package: Any) -> None:
    plain = llm.generate("The capital of France is", PARAMS)[0].outputs[0].text
    stream = llm.stream("The capital of France is", PARAMS)
    text = next(stream).text
    assert llm.generate("Hello", PARAMS, logits_processors=["commas"])[0].outputs[0].text == ",,,"
    assert text + "".join(chunk.text for chunk in stream) == plain


def test_one_function_needs_no_list(package: Any) -> None:
    assert find_processors(package.only_commas) == (package.only_commas,)
    assert find_processors("commas") == (package.only_commas,)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("comas", r"no logits processor 'comas'; installed are: broken, commas, number"),
        ("broken", r"'broken' cannot be loaded: .*missing"),
        ("number", r"'number' is no function but a int"),
        ("tiny_processors:nothing", r"cannot be loaded: .*nothing"),
        ("no_such_module:x", r"cannot be loaded: No module named 'no_such_module'"),
        (5, r"is a function or the name of one, got int"),
    ],
)
def test_what_cannot_be_found_is_named(package: Any, name: Any, sentence: str) -> None:
    with pytest.raises(InvalidRequestError, match=sentence) as caught:
        find_processors([name])
    assert caught.value.param == "logits_processors"


def test_a_processor_that_fails_ends_its_own_request(llm: LLM, package: Any) -> None:
    def fails(prompt: list[int], output: list[int], logits: Any) -> Any:
        raise RuntimeError("out of ideas")

    with pytest.raises(PenstockError, match="out of ideas"):
        llm.generate("Hello", PARAMS, logits_processors=[fails])
    assert llm.generate("Hello", PARAMS)[0].outputs[0].text
    assert not llm.engine.has_work
