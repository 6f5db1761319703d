"""What Triton says of its models, its answers and its load, read without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.request import SamplingParams
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.triton_answer import (
    Piece,
    TritonLoad,
    TritonRefusalError,
    read_generated,
    read_inferred,
    read_load,
    read_vectors,
    refusal,
)
from penstock.protocol.triton_model import TritonModel, ensemble_steps, read_model
from penstock.protocol.triton_request import (
    TritonNames,
    embed_request,
    generate_request,
    infer_request,
    model_path,
)
from tests.servers.triton import CONFIGS, METRICS

NAMES = TritonNames()


def model(name: str, **changes: Any) -> TritonModel:
    config = json.dumps(CONFIGS[name] | changes).encode()
    steps = {step: json.dumps(CONFIGS[step]).encode() for step in ensemble_steps(config)}
    return read_model(config, steps)


@pytest.mark.parametrize(
    ("name", "flavour", "decoupled", "echoes"),
    [
        ("ensemble", "trtllm", True, True),
        ("vllm_model", "vllm", True, False),
        ("renamed", "plain", False, False),
        ("embedder", "plain", False, False),
    ],
)
def test_a_configuration_says_what_kind_of_model_it_is(
    name: str, flavour: str, decoupled: bool, echoes: bool
) -> None:
    found = model(name)
    assert (found.flavour, found.decoupled, found.echoes) == (flavour, decoupled, echoes)


@pytest.mark.parametrize(("value", "echoes"), [("true", False), ("false", True), ("${unset}", True)])
def test_whether_the_prompt_comes_back_is_a_parameter_of_a_step(value: str, echoes: bool) -> None:
    step = CONFIGS["tensorrt_llm"] | {"parameters": {"exclude_input_in_output": {"string_value": value}}}
    found = read_model(json.dumps(CONFIGS["ensemble"]).encode(), {"tensorrt_llm": json.dumps(step).encode()})
    assert found.echoes is echoes


def test_a_model_that_gathers_tokens_repeats_its_text() -> None:
    assert model("ensemble", parameters={"accumulate_tokens": {"string_value": "True"}}).cumulative
    assert not model("ensemble").cumulative


@pytest.mark.parametrize("config", [b"", b"[]", b'{"input": 3}', b"\xff"])
def test_a_configuration_that_is_none_is_refused(config: bytes) -> None:
    with pytest.raises(ForeignAnswerError):
        read_model(config)


def test_the_only_output_of_numbers_is_the_vector() -> None:
    assert model("embedder").embedding() == "embedding"
    assert model("renamed").embedding() is None


def test_names_in_paths_are_quoted() -> None:
    assert model_path("a/b c", None, "ready") == b"/v2/models/a%2Fb%20c/ready"
    assert model_path("m", "../x", "generate") == b"/v2/models/m/versions/..%2Fx/generate"


def test_tensors_of_infer_have_shapes_and_types() -> None:
    params = SamplingParams(max_tokens=5, temperature=0.5, stop=("a", "b"))
    inputs = {
        each["name"]: (each["datatype"], each["shape"], each["data"])
        for each in infer_request(model("ensemble"), NAMES, "Hi", params)["inputs"]
    }
    assert inputs == {
        "text_input": ("BYTES", [1, 1], ["Hi"]),
        "max_tokens": ("INT32", [1, 1], [5]),
        "temperature": ("FP32", [1, 1], [0.5]),
        "stop_words": ("BYTES", [1, 2], ["a", "b"]),
        "bad_words": ("BYTES", [1, 1], [""]),
        "stream": ("BOOL", [1, 1], [False]),
    }
    shapes = [each["shape"] for each in infer_request(model("vllm_model"), NAMES, "Hi", params)["inputs"]]
    assert set(map(tuple, shapes)) == {(1,)}  # no batch dimension


def test_a_model_without_stop_words_is_not_sent_any() -> None:
    assert generate_request(model("renamed"), NAMES, "Hi", SamplingParams(stop=("a",)), stream=False) == {
        "text_input": "Hi",
        "parameters": {},
    }


@pytest.mark.parametrize(
    ("body", "piece"),
    [
        ({"text_output": "Hi"}, Piece("Hi")),
        ({"text_output": ["Hi", "!"]}, Piece("Hi!")),
        (
            {"text_output": "Hi", "finish_reason": "length", "num_input_tokens": 3, "num_output_tokens": [2]},
            Piece("Hi", "length", 3, 2),
        ),
        ({"text_output": "Hi", "finish_reason": "None", "num_output_tokens": -1}, Piece("Hi")),
    ],
)
def test_a_generated_text(body: dict[str, Any], piece: Piece) -> None:
    assert read_generated(json.dumps(body).encode(), NAMES) == piece


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"text_output": 5}', b"\xff", b"<html>"])
def test_what_is_no_text_is_said_to_be_none(body: bytes) -> None:
    for read in (read_generated, read_inferred):
        with pytest.raises(ForeignAnswerError):
            read(body, NAMES)


def test_an_error_object_is_told_in_its_words() -> None:
    with pytest.raises(TritonRefusalError, match="no room"):
        read_generated(b'{"error": "no room"}', NAMES)
    assert refusal(b'{"error": "no room"}') == "no room"
    assert refusal(b"<html>") == ""
    assert refusal(b"[1]") == ""


def outputs(shape: list[int], data: Any) -> bytes:
    return json.dumps({"outputs": [{"name": "v", "datatype": "FP32", "shape": shape, "data": data}]}).encode()


@given(st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=1, max_size=5))
def test_vectors_may_be_flat_or_nested(rows: list[list[float]]) -> None:
    flat = [value for row in rows for value in row]
    for data in (flat, rows):
        assert read_vectors(outputs([len(rows), 3], data), "v", len(rows)) == rows


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([2, 2], [1, 2, 3]),
        ([3, 1], [1, 2, 3]),
        ([2, 0], []),
        ([2, 1], ["a", "b"]),
        ([2, 1], [1, None]),
        ([-2], [1]),
    ],
)
def test_tensors_that_are_not_a_vector_for_each_text_are_refused(shape: list[int], data: list[Any]) -> None:
    with pytest.raises(ForeignAnswerError):
        read_vectors(outputs(shape, data), "v", 2)
    with pytest.raises(ForeignAnswerError, match="lacks the output 'w'"):
        read_vectors(outputs([1], [1]), "w", 1)


def test_embeddings_are_asked_for_in_one_batch() -> None:
    request = embed_request(model("embedder"), "text_input", "embedding", ["a", "b"])
    assert request["inputs"] == [
        {"name": "text_input", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "b"]}
    ]


def test_the_load_is_that_of_the_model_and_its_steps() -> None:
    page = METRICS.encode()
    assert read_load(page, ("ensemble", "tensorrt_llm")) == TritonLoad(6, 5, 0.25)
    assert read_load(page, ("embedder",)) == TritonLoad(0, 40, None)
    assert read_load(page, ("other",)) is None
    assert read_load(b'nv_inference_pending_request_count{model="m"} NaN\n', ("m",)) == TritonLoad(0, 0, None)
    assert read_load(b"\xff\x00garbage", ("m",)) is None
