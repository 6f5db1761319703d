"""Triton's answers: generated text, tensors, errors, and its own account of its load."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.triton_request import TritonNames


class TritonRefusalError(ForeignAnswerError):
    """Triton says in words what is wrong: `{"error": ...}`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One answer to a request: all of the text, or what a stream adds. None: the server does not say."""

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None  # of this piece


_any: Final = msgspec.json.Decoder()


def read_generated(data: bytes, names: TritonNames) -> Piece:
    """The body of generate, or the data of one event of generate_stream."""
    return _piece(_object(data), names)


def read_inferred(data: bytes, names: TritonNames) -> Piece:
    """The body of `infer`."""
    outputs = _outputs(_object(data))
    return _piece({name: values for name, (_, values) in outputs.items()}, names)


def read_vectors(data: bytes, output: str, count: int) -> list[list[float]]:
    """The rows of a tensor: one vector for each of `count` texts."""
    found = _outputs(_object(data)).get(output)
    if found is None:
        raise ForeignAnswerError(f"The server's answer lacks the output {output!r}.")
    shape, values = found
    width = len(values) // count if count else 0
    whole = len(values) == count * width and width > 0 and shape[:1] == [count]
    if not whole or math.prod(shape) != len(values):
        raise ForeignAnswerError(f"The server's output {output!r} does not have a vector for each text.")
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise ForeignAnswerError(f"The server's output {output!r} has values that are no numbers.")
    return [values[start : start + width] for start in range(0, len(values), width)]


def refusal(data: bytes) -> str:
    """What an answer that is not 200 says; nothing if it does not."""
    try:
        content = _any.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    match content:
        case {"error": str(message)}:
            return message
    return ""


@dataclass(frozen=True, slots=True)
class TritonLoad:
    running: int
    waiting: int
    kv_usage: float | None


_SAMPLE: Final = re.compile(rb"^(nv_\w+)\{([^}\n]*)\}[ \t]+(\S+)", re.MULTILINE)
_LABEL: Final = re.compile(rb'(\w+)="([^"]*)"')


def read_load(page: bytes, models: tuple[str, ...]) -> TritonLoad | None:
    """From Triton's metrics, of the model and those it is made of. None: they say nothing of it.

    TensorRT-LLM counts as active all that its batch manager holds, and as scheduled what the last step
    computed; for other models Triton itself knows how many wait for an execution.
    """
    active = scheduled = pending = None
    used = most = 0.0
    for name, labels, text in _SAMPLE.findall(page):
        label = dict(_LABEL.findall(labels))
        if label.get(b"model", b"").decode("utf-8", "replace") not in models:
            continue
        value = _number(text)
        if name == b"nv_trt_llm_request_metrics":
            if label.get(b"request_type") == b"active":
                active = (active or 0.0) + value
            elif label.get(b"request_type") == b"scheduled":
                scheduled = (scheduled or 0.0) + value
        elif name == b"nv_trt_llm_kv_cache_block_metrics":
            if label.get(b"kv_cache_block_type") == b"used":
                used += value
            elif label.get(b"kv_cache_block_type") == b"max":
                most += value
        elif name == b"nv_inference_pending_request_count":
            pending = (pending or 0.0) + value
    if active is None and pending is None:
        return None
    held = active or 0.0
    running = held if scheduled is None else min(held, scheduled)
    waiting = held - running + (pending or 0.0)
    return TritonLoad(round(running), round(waiting), used / most if most else None)


def _number(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value >= 0 else 0.0


def _object(data: bytes) -> dict[str, Any]:
    try:
        content = _any.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ForeignAnswerError("The server's answer is not one of Triton's.")
    if isinstance(content.get("error"), str):
        raise TritonRefusalError(content["error"])
    return content


def _piece(content: dict[str, Any], names: TritonNames) -> Piece:
    text = content.get(names.text_output)
    if isinstance(text, list):
        text = "".join(each for each in text if isinstance(each, str))
    if not isinstance(text, str):
        raise ForeignAnswerError(f"The server's answer lacks the text output {names.text_output!r}.")
    reason = _first(content.get("finish_reason"))
    return Piece(
        text,
        reason if reason in ("stop", "length") else None,
        _count(content.get("num_input_tokens")),
        _count(content.get("num_output_tokens")),
    )


def _outputs(content: dict[str, Any]) -> dict[str, tuple[list[int], list[Any]]]:
    """Shape and values of each output of `infer`. Values may be flat or nested."""
    found: dict[str, tuple[list[int], list[Any]]] = {}
    outputs = content.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        match output:
            case {"name": str(name), "shape": [*shape], "data": [*values]} if all(
                isinstance(size, int) and size >= 0 for size in shape
            ):
                found[name] = (shape, _flat(values))
    if not found:
        raise ForeignAnswerError("The server's answer has no outputs with data.")
    return found


def _flat(values: list[Any]) -> list[Any]:
    while values and isinstance(values[0], list):
        values = [value for row in values for value in (row if isinstance(row, list) else [row])]
    return values


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _count(value: Any) -> int | None:
    counted = _first(value)
    return counted if isinstance(counted, int) and not isinstance(counted, bool) and counted >= 0 else None
