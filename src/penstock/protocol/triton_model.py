"""What a model on Triton takes and gives, read from its configuration (`/v2/models/M/config`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from penstock.protocol.foreign import ForeignAnswerError

# Which conventions its tensors follow: those of TensorRT-LLM's ensemble and BLS models, those of the vLLM
# backend, or the generate extension's own, which knows text and parameters.
Flavour = Literal["trtllm", "vllm", "plain"]

_FLOATS: Final = ("FP32", "FP16", "FP64", "BF16")


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    datatype: str  # as KServe calls it: BYTES, FP32, INT32, BOOL
    optional: bool


@dataclass(frozen=True, slots=True)
class TritonModel:
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    flavour: Flavour
    batched: bool  # a batch dimension comes before the shape
    decoupled: bool  # one request may have any number of answers, so that infer cannot be asked
    echoes: bool  # the prompt comes back in front of the text
    cumulative: bool  # each answer of a stream has the whole text so far
    steps: tuple[str, ...]  # models of an ensemble

    def embedding(self) -> str | None:
        """The output that must be a vector: the only one of floating point numbers."""
        found = [tensor.name for tensor in self.outputs.values() if tensor.datatype in _FLOATS]
        return found[0] if len(found) == 1 else None


class _Tensor(msgspec.Struct):
    name: str
    data_type: str
    optional: bool = False


class _Parameter(msgspec.Struct):
    string_value: str = ""


class _Policy(msgspec.Struct):
    decoupled: bool = False


class _Step(msgspec.Struct):
    model_name: str


class _Ensemble(msgspec.Struct):
    step: list[_Step] = msgspec.field(default_factory=list)


class _Config(msgspec.Struct):
    input: list[_Tensor] = msgspec.field(default_factory=list)
    output: list[_Tensor] = msgspec.field(default_factory=list)
    max_batch_size: int = 0
    backend: str = ""
    parameters: dict[str, _Parameter] = msgspec.field(default_factory=dict)
    model_transaction_policy: _Policy = msgspec.field(default_factory=_Policy)
    ensemble_scheduling: _Ensemble = msgspec.field(default_factory=_Ensemble)


_configs: Final = msgspec.json.Decoder(_Config)


def ensemble_steps(config: bytes) -> tuple[str, ...]:
    """The models that an ensemble is made of; none for any other model."""
    return tuple(step.model_name for step in _decoded(config).ensemble_scheduling.step)


def read_model(config: bytes, steps: Mapping[str, bytes] | None = None) -> TritonModel:
    """`steps`: the configurations of an ensemble's models, which know what its own does not say."""
    own = _decoded(config)
    parts = [own, *map(_decoded, (steps or {}).values())]
    inputs = _tensors(own.input)
    return TritonModel(
        inputs=inputs,
        outputs=_tensors(own.output),
        flavour=_flavour(own, inputs),
        batched=own.max_batch_size > 0,
        decoupled=any(part.model_transaction_policy.decoupled for part in parts),
        echoes=_echoes(own, parts, inputs),
        cumulative=_flag(parts, "accumulate_tokens") is True,
        steps=tuple(step.model_name for step in own.ensemble_scheduling.step),
    )


def _decoded(config: bytes) -> _Config:
    try:
        return _configs.decode(config)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ForeignAnswerError("The server's configuration of the model cannot be read.") from None


def _tensors(given: list[_Tensor]) -> dict[str, Tensor]:
    return {each.name: Tensor(each.name, _datatype(each.data_type), each.optional) for each in given}


def _datatype(name: str) -> str:
    """Triton's configuration says TYPE_STRING where its protocol says BYTES."""
    short = name.removeprefix("TYPE_")
    return "BYTES" if short == "STRING" else short


def _flavour(config: _Config, inputs: Mapping[str, Any]) -> Flavour:
    if config.backend == "vllm" or "sampling_parameters" in inputs:
        return "vllm"
    return "trtllm" if "max_tokens" in inputs else "plain"


def _echoes(own: _Config, parts: list[_Config], inputs: Mapping[str, Any]) -> bool:
    if "exclude_input_in_output" in inputs:
        return False  # it is told not to, with every request
    # TensorRT-LLM's model has it as a parameter, which is off unless it is set.
    excluded = _flag(parts, "exclude_input_in_output")
    return excluded is False or (excluded is None and _flavour(own, inputs) == "trtllm")


def _flag(parts: list[_Config], name: str) -> bool | None:
    """A parameter of any of the models; None where nobody sets it."""
    for part in parts:
        value = part.parameters.get(name, _Parameter()).string_value.strip().lower()
        if value in ("true", "1"):
            return True
        if value in ("false", "0"):
            return False
    return None
