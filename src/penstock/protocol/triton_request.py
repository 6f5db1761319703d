"""Requests to Triton: the generate extension, and KServe's `infer`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import quote

from penstock.engine.request import SamplingParams
from penstock.errors import InvalidRequestError
from penstock.protocol.triton_model import TritonModel

_DEFAULTS: Final = SamplingParams()
# What each flavour calls our sampling parameters. Stop strings are also found in the text itself.
_TRTLLM: Final = {
    "max_tokens": "max_tokens",
    "min_tokens": "min_length",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "random_seed",
    "stop": "stop_words",
    "bad_words": "bad_words",
}
_VLLM: Final = {
    name: name
    for name in (
        "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
        "presence_penalty", "frequency_penalty", "seed", "stop", "stop_token_ids", "ignore_eos", "bad_words",
    )
}  # fmt: skip
# Parameters are numbers, texts and booleans: there is no list of words among them.
_PLAIN: Final = {
    name: name
    for name in (
        "max_tokens", "temperature", "top_p", "top_k", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "seed", "stop",
    )
}  # fmt: skip
_KNOWN: Final = {"trtllm": _TRTLLM, "vllm": _VLLM, "plain": _PLAIN}
# What the vLLM backend says beside the text if it is asked to.
_EXTRAS: Final = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens")


@dataclass(frozen=True, slots=True)
class TritonNames:
    """What a model calls its text; an ensemble may have other names than the usual ones."""

    text_input: str = "text_input"
    text_output: str = "text_output"


def model_path(model: str, version: str | None, action: str) -> bytes:
    where = f"/v2/models/{quote(model, safe='')}"
    if version is not None:
        where += f"/versions/{quote(version, safe='')}"
    return f"{where}/{action}".encode()


def generate_request(
    model: TritonModel, names: TritonNames, text: str, params: SamplingParams, *, stream: bool
) -> dict[str, Any]:
    """The body for generate and generate_stream. Raises InvalidRequestError for what the model lacks."""
    given = _sampling(model, params)
    request: dict[str, Any] = {names.text_input: text}
    if model.flavour == "trtllm":
        request |= given
        request |= {
            name: "" for name in ("bad_words", "stop_words") if name not in given and _required(model, name)
        }
    elif model.flavour == "vllm" and "sampling_parameters" in model.inputs:
        request["sampling_parameters"] = json.dumps(given)
        request |= {name: True for name in _EXTRAS if name in model.inputs}
    else:
        request["parameters"] = given
    for name, value in (("stream", stream), ("exclude_input_in_output", True)):
        if name in model.inputs:
            request[name] = value
    return request


def infer_request(
    model: TritonModel, names: TritonNames, text: str, params: SamplingParams
) -> dict[str, Any]:
    """The body of `infer` for one text: the same tensors, each with its shape and type."""
    flat = generate_request(model, names, text, params, stream=False)
    parameters = flat.pop("parameters", None)
    request: dict[str, Any] = {
        "inputs": [_tensor(model, name, value) for name, value in flat.items()],
        "outputs": [{"name": name} for name in model.outputs if name in _wanted(names)],
    }
    if parameters:
        request["parameters"] = parameters
    return request


def embed_request(model: TritonModel, input_name: str, output: str, texts: Sequence[str]) -> dict[str, Any]:
    shape = [len(texts), 1] if model.batched else [len(texts)]
    return {
        "inputs": [{"name": input_name, "shape": shape, "datatype": "BYTES", "data": list(texts)}],
        "outputs": [{"name": output}],
    }


def _wanted(names: TritonNames) -> tuple[str, ...]:
    return (names.text_output, "finish_reason", "num_input_tokens", "num_output_tokens")


def _sampling(model: TritonModel, params: SamplingParams) -> dict[str, Any]:
    """What differs from the default, by the names of the model; the limit always."""
    known = _KNOWN[model.flavour]
    changed: dict[str, Any] = {}
    for field in fields(SamplingParams):
        value = getattr(params, field.name)
        if value != getattr(_DEFAULTS, field.name) and not (field.name == "top_k" and value <= 0):
            changed[field.name] = list(value) if isinstance(value, tuple) else value
    if model.flavour == "trtllm" and changed.get("temperature") == 0:
        # Its sampler divides by the temperature; greedy is the one likeliest token.
        del changed["temperature"]
        changed["top_k"] = 1
    result: dict[str, Any] = {}
    for name, value in changed.items():
        there = known.get(name)
        lacks = model.flavour == "trtllm" and there is not None and there not in model.inputs
        if name == "stop" and (lacks or model.flavour == "plain"):
            continue  # found in the text when it comes
        if there is None or lacks:
            raise InvalidRequestError(
                f"{name} is not supported by this model's server.", param=name, code="unsupported_parameter"
            )
        result[there] = value
    return result


def _required(model: TritonModel, name: str) -> bool:
    tensor = model.inputs.get(name)
    return tensor is not None and not tensor.optional


def _tensor(model: TritonModel, name: str, value: Any) -> dict[str, Any]:
    data = value if isinstance(value, list) else [value]
    shape = [1, len(data)] if model.batched else [len(data)]
    tensor = model.inputs.get(name)
    datatype = tensor.datatype if tensor is not None else _datatype(data[0])
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def _datatype(value: Any) -> str:
    kinds: Mapping[type, str] = {str: "BYTES", bool: "BOOL", int: "INT32", float: "FP32"}
    return kinds[type(value)]
