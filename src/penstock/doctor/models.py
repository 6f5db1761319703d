"""Models, read from their headers: what they are, what they take, and whether they can be served."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.doctor.ask import Opinion
from penstock.doctor.finding import Finding, Status, gib
from penstock.doctor.fit import KV_BYTES, Budget, Fit, ModelSize, Verdict, fit, weight_bytes
from penstock.engine.config import Task
from penstock.errors import ModelError
from penstock.hub.files import ModelFiles
from penstock.hub.gguf import GGUFFile
from penstock.hub.safetensors import SafetensorsFolder

_STATUSES: dict[Verdict, Status] = {"fits": "ok", "short": "note", "no": "warning"}
_PURPOSES: dict[Task, str] = {
    "generate": "generates text",
    "embed": "gives embeddings",
    "score": "scores pairs of texts",
}
# Kinds that the native kernels keep in 4 bits.
_FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K")
_PRECISIONS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHeader:
    """What a model's files say of it."""

    architecture: str
    stored: str  # the number format most of it is stored in
    bytes: int  # on the disk
    size: ModelSize

    def precision(self, chosen: str, device: str, *, int8: bool = False) -> str:
        """What it would be computed in; the engine's rule for "auto". `int8`: the CPU can."""
        if chosen in KV_BYTES and chosen != "int8" and (chosen, device) != ("fp8", "cpu"):
            return chosen
        if device == "cpu" and int8:
            return "int8"
        return "float32" if device == "cpu" else _PRECISIONS.get(self.stored, "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One model, as far as it could be looked at. `refusal` None: nothing stands against it but its size."""

    name: str  # what to type for it
    path: str
    format: str
    task: Task | None  # None: the engine could not be asked
    header: ModelHeader | None
    fit: Fit | None
    refusal: str | None

    @property
    def servable(self) -> bool:
        return self.refusal is None and self.fit is not None and self.fit.verdict != "no"


def read_header(files: ModelFiles) -> ModelHeader:
    """ModelError says which number is missing; nothing but headers is read."""
    try:
        return _gguf(files.path) if files.format == "gguf" else _safetensors(files.path)
    except KeyError as error:
        raise ModelError(f"{files.path} does not give {error.args[0]!r}, so its size is not known.") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelError(f"{files.path} describes a model that makes no sense: {error}.") from None


def examine(
    name: str, files: ModelFiles, budget: Budget, precision: str, opinion: Opinion | None
) -> Examined:
    """`opinion` None: the engine could not be asked. Its numbers go before those of the header."""
    header, fitted = None, None
    told = opinion or Opinion()
    refusal = told.refusal
    if "fp8" in (precision, budget.kv_precision) and budget.device == "cpu":
        refusal = (
            refusal or "fp8 is asked for, which needs a GPU; on the CPU leave precision and KV cache at auto."
        )
    try:
        header = _corrected(read_header(files), told)
        fitted = fit(header.size, header.precision(precision, budget.device, int8=told.int8), budget)
    except ModelError as error:
        refusal = refusal or str(error)
    return Examined(
        name=name,
        path=str(files.path),
        format=files.format,
        task=told.task,
        header=header,
        fit=fitted,
        refusal=refusal,
    )


def _corrected(header: ModelHeader, told: Opinion) -> ModelHeader:
    size = header.size
    if told.kv_per_token is not None:
        size = replace(
            size,
            kv_per_token=told.kv_per_token,
            context=told.context or size.context,
            tied=size.tied and told.task == "generate",  # others have no output matrix
        )
    return replace(header, architecture=told.architecture or header.architecture, size=size)


def judge_briefly(model: Examined, section: str, budget: Budget) -> Finding:
    """One line for a model among others."""
    if model.refusal is not None or model.header is None or model.fit is None:
        return Finding(section, model.name, "warning", model.refusal or "Its header cannot be read.")
    verdict = _verdict(model.fit, model.header.size, budget)
    sentence = f"{_billions(model.header.size.parameters)} parameters, {verdict}"
    return Finding(section, model.name, _STATUSES[model.fit.verdict], sentence)


def judge_fully(model: Examined, section: str, budget: Budget, text: Finding | None = None) -> list[Finding]:
    """Everything about the model that was asked for, with what was found about its tokenizer."""
    found = []
    if model.header is not None:
        kind = f"{model.header.architecture}, {model.format}, {model.header.stored}"
        if model.task is not None:
            sentence = f"{kind}: one that Penstock runs, and that {_PURPOSES[model.task]}."
            found.append(Finding(section, "architecture", "ok", sentence))
        elif model.refusal is None:
            sentence = f"{kind}. Whether Penstock runs it is not known without torch."
            found.append(Finding(section, "architecture", "note", sentence))
    if model.refusal is not None:
        found.append(Finding(section, "architecture", "problem", model.refusal))
    if model.header is None or model.fit is None:
        return found
    size, fitted = model.header.size, model.fit
    sentence = f"{_billions(size.parameters)} parameters, {gib(model.header.bytes)} on the disk and "
    sentence += f"{gib(fitted.weights)} in memory as {fitted.precision}"
    copied = fitted.weights > weight_bytes(size, fitted.precision)
    sentence += ", the token embedding twice." if copied else "."
    found.append(Finding(section, "weights", "ok", sentence))
    if size.kv_per_token:
        found.append(_cache(size, fitted, section))
    if text is not None:
        found.append(text)
    if model.refusal is None and (text is None or text.status != "problem"):
        found.append(_conclusion(model, section, budget))
    return found


def _cache(size: ModelSize, fitted: Fit, section: str) -> Finding:
    whole = fitted.kv_per_token * size.context
    sentence = f"{gib(fitted.kv_per_token)} a token, {gib(whole)} for the model's {size.context:,} tokens."
    if fitted.kv_bytes:
        room = fitted.kv_bytes // fitted.kv_per_token
        sentence += f" All requests together would share {gib(fitted.kv_bytes)}: {room:,} tokens."
    return Finding(section, "KV cache", "ok", sentence)


def _conclusion(model: Examined, section: str, budget: Budget) -> Finding:
    assert model.header is not None
    assert model.fit is not None
    size, fitted = model.header.size, model.fit
    verdict = _verdict(fitted, size, budget)
    sentence = f"It {verdict}"
    serve = f"penstock serve {shlex.quote(model.name)}"
    if fitted.verdict == "fits":
        return Finding(section, "verdict", "ok", sentence, serve)
    if fitted.precision == "float32":
        smaller = fit(size, "bfloat16", budget)
        if smaller.verdict == "fits" or smaller.verdict != fitted.verdict:
            sentence += f" As bfloat16 it {_verdict(smaller, size, budget)}"
            return Finding(section, "verdict", "warning", sentence, f"{serve} --precision bfloat16")
    if fitted.verdict == "short":
        return Finding(section, "verdict", "warning", sentence, serve)
    return Finding(section, "verdict", "problem", sentence)


def _verdict(fitted: Fit, size: ModelSize, budget: Budget) -> str:
    available = f"{gib(budget.available)} available"
    if fitted.verdict == "no":
        return f"does not fit: {gib(fitted.needed)} for {fitted.stated:,} tokens of context, {available}."
    if not size.kv_per_token:
        return f"fits: {gib(fitted.needed)} of the {available}, for texts of up to {fitted.context:,} tokens."
    which = "its whole context of" if fitted.context == size.context else "a context of"
    if fitted.verdict == "short":
        which = "a context shortened to"
    of = f"{gib(fitted.needed_for(fitted.context))} of the {available}"
    return f"fits with {which} {fitted.context:,} tokens: {of}."


def _billions(count: int) -> str:
    if count < 1e6:
        return f"{count:,}"
    return f"{count / 1e9:.1f} billion" if count >= 0.95e9 else f"{count / 1e6:.0f} million"


def _gguf(path: Path) -> ModelHeader:
    file = GGUFFile(path)
    kind = file.get("general.architecture")
    if not isinstance(kind, str):
        raise ModelError(f"{path} does not say its architecture; it is not a language model's file.")
    counts = {name: math.prod(tensor.shape) for name, tensor in file.tensors.items()}
    stored: Counter[str] = Counter()
    for tensor in file.tensors.values():
        stored[tensor.type_name] += tensor.nbytes
    heads = file.metadata[f"{kind}.attention.head_count"]
    head = file.get(f"{kind}.attention.key_length") or file.metadata[f"{kind}.embedding_length"] // _one(
        heads
    )
    layers = file.metadata[f"{kind}.block_count"]
    kv_heads = file.get(f"{kind}.attention.head_count_kv") or heads
    all_kv_heads = sum(kv_heads) if isinstance(kv_heads, list) else kv_heads * layers
    return ModelHeader(
        architecture=kind,
        stored=stored.most_common(1)[0][0],
        bytes=file.bytes,
        size=ModelSize(
            parameters=sum(counts.values()),
            embedding=counts.get("token_embd.weight", 0),
            tied="output.weight" not in counts,
            kv_per_token=2 * all_kv_heads * head,
            context=file.metadata[f"{kind}.context_length"],
            four_bits=sum(counts[name] for name, t in file.tensors.items() if t.type_name in _FOUR_BITS),
        ),
    )


def _safetensors(path: Path) -> ModelHeader:
    folder = SafetensorsFolder(path)
    config: Mapping[str, Any] = {**folder.config, **(folder.config.get("text_config") or {})}
    classes = folder.config.get("architectures") or [config.get("model_type", "unknown")]
    tied = bool(config.get("tie_word_embeddings", False)) or "lm_head.weight" not in folder.tensors
    counts = {name: math.prod(entry.shape) for name, entry in folder.tensors.items()}
    if tied:
        counts.pop("lm_head.weight", None)  # a second copy, which is not read
    stored = Counter(entry.dtype for entry in folder.tensors.values())
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    embeddings = [count for name, count in counts.items() if name.endswith("embed_tokens.weight")]
    return ModelHeader(
        architecture=", ".join(map(str, classes)),
        stored=stored.most_common(1)[0][0],
        bytes=sum(file.stat().st_size for file in {entry.file for entry in folder.tensors.values()}),
        size=ModelSize(
            parameters=sum(counts.values()),
            embedding=max(embeddings, default=0),
            tied=tied,
            kv_per_token=2
            * config["num_hidden_layers"]
            * (config.get("num_key_value_heads") or heads)
            * head,
            context=config["max_position_embeddings"],
        ),
    )


def _one(value: Any) -> int:
    """A number, or the first of a list that has one for each layer."""
    return int(value[0] if isinstance(value, list) else value)
