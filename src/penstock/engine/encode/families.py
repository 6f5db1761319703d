"""The encoders that can be read: how each says its shape, and what its tensors are called.

A new family is one function that reads its shape, one table of names and one line in ENCODERS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.encode.config import Activation, EncoderConfig, ScoreActivation
from penstock.errors import ModelError

# Our name of each tensor -> the file's; {i} is the layer, {p} the prefix of a model inside a larger one.
Names = Mapping[str, str]

BERT_TENSORS: Names = {
    "tokens": "{p}embeddings.word_embeddings",
    "positions": "{p}embeddings.position_embeddings",
    "segments": "{p}embeddings.token_type_embeddings",
    "embedding_norm": "{p}embeddings.LayerNorm",
    "query": "{p}encoder.layer.{i}.attention.self.query",
    "key": "{p}encoder.layer.{i}.attention.self.key",
    "value": "{p}encoder.layer.{i}.attention.self.value",
    "attention_output": "{p}encoder.layer.{i}.attention.output.dense",
    "attention_norm": "{p}encoder.layer.{i}.attention.output.LayerNorm",
    "up": "{p}encoder.layer.{i}.intermediate.dense",
    "down": "{p}encoder.layer.{i}.output.dense",
    "output_norm": "{p}encoder.layer.{i}.output.LayerNorm",
}
GGUF_TENSORS: Names = {
    "tokens": "token_embd",
    "positions": "position_embd",
    "segments": "token_types",
    "embedding_norm": "token_embd_norm",
    "query": "blk.{i}.attn_q",
    "key": "blk.{i}.attn_k",
    "value": "blk.{i}.attn_v",
    "attention_output": "blk.{i}.attn_output",
    "attention_norm": "blk.{i}.attn_output_norm",
    "up": "blk.{i}.ffn_up",
    "down": "blk.{i}.ffn_down",
    "output_norm": "blk.{i}.layer_output_norm",
    "head_dense": "cls",
    "head_output": "cls.output",
}
_BERT_HEAD: Names = {"head_dense": "{p}pooler.dense", "head_output": "classifier"}
_ROBERTA_HEAD: Names = {"head_dense": "classifier.dense", "head_output": "classifier.out_proj"}

_ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
# sentence-transformers writes the class it applies to a classifier's number; without one, a sigmoid.
_SCORE_ACTIVATIONS: Mapping[str, ScoreActivation] = {"Sigmoid": "sigmoid", "Identity": "identity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One class of config.json's `architectures`."""

    prefix: str
    config: Callable[[dict[str, Any], bool], EncoderConfig]
    tensors: Names
    # Beginnings of names that a file may have beside them: what other tasks use.
    spare: tuple[str, ...]
    scores: bool = False


_REQUIRED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "max_position_embeddings", "type_vocab_size",
)  # fmt: skip


def _bert(raw: dict[str, Any], scores: bool) -> EncoderConfig:
    return _shared(raw, "bert", 0, scores)


def _roberta(raw: dict[str, Any], scores: bool) -> EncoderConfig:
    padding = raw.get("pad_token_id", 1)
    if not isinstance(padding, int) or padding < 0:
        raise ModelError(f"The model's pad_token_id is {padding!r}; positions are counted from it.")
    return _shared(raw, "roberta", padding + 1, scores)


def _shared(raw: dict[str, Any], architecture: str, first: int, scores: bool) -> EncoderConfig:
    missing = [name for name in _REQUIRED if raw.get(name) is None]
    if missing:
        raise ModelError(f"config.json does not give {', '.join(missing)}, which its architecture needs.")
    kind = raw.get("position_embedding_type", "absolute")
    if kind != "absolute":
        raise ModelError(f"The model's position_embedding_type is {kind!r}; only 'absolute' can be computed.")
    if raw.get("is_decoder") or raw.get("add_cross_attention"):
        raise ModelError("The model is an encoder turned decoder (is_decoder), which cannot be computed.")
    activation = raw.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ModelError(f"The model's hidden_act is {activation!r}; {known} can be computed.")
    return EncoderConfig(
        architecture=architecture,
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=raw["num_attention_heads"],
        positions=raw["max_position_embeddings"],
        context_length=raw["max_position_embeddings"] - first,
        segments=raw["type_vocab_size"],
        norm_eps=raw.get("layer_norm_eps", 1e-12),
        first_position=first,
        activation=_ACTIVATIONS[activation],
        scores=scores,
        score_activation=_score_activation(raw) if scores else "sigmoid",
    )


def _score_activation(raw: dict[str, Any]) -> ScoreActivation:
    labels = raw.get("id2label")
    count = len(labels) if isinstance(labels, dict) else raw.get("num_labels", 2)
    if count != 1:
        raise ModelError(
            f"The model's classifier has {count} labels; scoring a pair of texts needs one that has 1."
        )
    newer = raw.get("sentence_transformers")
    named = newer.get("activation_fn") if isinstance(newer, dict) else None
    named = named or raw.get("sbert_ce_default_activation_function") or "Sigmoid"
    kind = str(named).rpartition(".")[2]
    if kind not in _SCORE_ACTIVATIONS:
        raise ModelError(f"The model's score goes through {named!r}; only Sigmoid and Identity are known.")
    return _SCORE_ACTIVATIONS[kind]


def _family(prefix: str, config: Callable[[dict[str, Any], bool], EncoderConfig]) -> Family:
    spare = ("{p}pooler.", "{p}embeddings.position_ids", "cls.", "lm_head.")
    return Family(prefix=prefix, config=config, tensors=BERT_TENSORS, spare=spare)


def _scoring(family: Family, head: Names) -> Family:
    return replace(family, scores=True, tensors={**family.tensors, **head})


_BERT = _family("bert.", _bert)
_ROBERTA = _family("roberta.", _roberta)
ENCODERS: Mapping[str, Family] = {
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "BertForSequenceClassification": _scoring(_BERT, _BERT_HEAD),
    "RobertaModel": _ROBERTA,
    "RobertaForMaskedLM": _ROBERTA,
    "RobertaForSequenceClassification": _scoring(_ROBERTA, _ROBERTA_HEAD),
    "XLMRobertaModel": _ROBERTA,
    "XLMRobertaForMaskedLM": _ROBERTA,
    "XLMRobertaForSequenceClassification": _scoring(_ROBERTA, _ROBERTA_HEAD),
}
GGUF_ENCODERS = ("bert",)
RANK = 4  # GGUF's pooling_type of a model with a classifier head


def gguf_config(
    metadata: Mapping[str, Any], *, vocab_size: int, positions: int, segments: int
) -> EncoderConfig:
    """The shape of GGUF's "bert", which RoBERTa's files use too: their unused positions are cut off.

    The numbers of rows are not in the metadata; the tables themselves tell.
    """
    return EncoderConfig(
        architecture="bert",
        vocab_size=vocab_size,
        hidden_size=metadata["bert.embedding_length"],
        intermediate_size=metadata["bert.feed_forward_length"],
        num_layers=metadata["bert.block_count"],
        num_heads=metadata["bert.attention.head_count"],
        positions=positions,
        context_length=min(metadata["bert.context_length"], positions),
        segments=segments,
        norm_eps=metadata["bert.attention.layer_norm_epsilon"],
        scores=metadata.get("bert.pooling_type") == RANK,
    )
