"""The encoders that can be read: how each says its shape, and what its tensors are called.

A new family is one function that reads its shape, one table of names and one line in ENCODERS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.encode.config import EncoderConfig, ScoreActivation
from penstock.engine.models.common import num_layers, read_activation
from penstock.engine.models.fields import Fields

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

# sentence-transformers writes the class it applies to a classifier's number; without one, a sigmoid.
_SCORE_ACTIVATIONS: Mapping[str, ScoreActivation] = {"Sigmoid": "sigmoid", "Identity": "identity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One class of config.json's `architectures`."""

    prefix: str
    config: Callable[[Fields, bool], EncoderConfig]
    tensors: Names
    # Beginnings of names that a file may have beside them: what other tasks use.
    spare: tuple[str, ...]
    scores: bool = False


def _bert(fields: Fields, scores: bool) -> EncoderConfig:
    return _shared(fields, "bert", 0, scores)


def _roberta(fields: Fields, scores: bool) -> EncoderConfig:
    # Positions are counted from the padding's on.
    return _shared(fields, "roberta", fields.integer("pad_token_id", 1, least=0) + 1, scores)


def _shared(fields: Fields, architecture: str, first: int, scores: bool) -> EncoderConfig:
    kind = fields.text("position_embedding_type", "absolute")
    if kind != "absolute":
        fields.complain(f"its position_embedding_type is {kind!r}, and only 'absolute' can be computed")
    if fields.flag("is_decoder", False) or fields.flag("add_cross_attention", False):
        fields.complain("it is an encoder turned decoder (is_decoder), which cannot be computed")
    vocab_size, hidden_size = fields.integer("vocab_size"), fields.integer("hidden_size")
    positions = fields.integer("max_position_embeddings")
    return EncoderConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=num_layers(fields),
        num_heads=fields.integer("num_attention_heads"),
        positions=positions,
        context_length=min(fields.integer("context_length", positions), positions - first),
        segments=fields.integer("type_vocab_size"),
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        first_position=first,
        activation=read_activation(fields, "hidden_act", "gelu"),
        scores=scores,
        score_activation=_score_activation(fields) if scores else "sigmoid",
    )


def _score_activation(fields: Fields) -> ScoreActivation:
    labels = len(fields.section("id2label")) or fields.integer("num_labels", 2)
    if labels != 1:
        fields.complain(f"its classifier has {labels} labels; scoring a pair of texts needs one that has 1")
    older = fields.text("sbert_ce_default_activation_function", "Sigmoid")
    named = fields.section("sentence_transformers").text("activation_fn", older)
    kind = named.rpartition(".")[2]
    if kind not in _SCORE_ACTIVATIONS:
        fields.complain(f"its score goes through {named!r}; only Sigmoid and Identity are known")
    return _SCORE_ACTIVATIONS.get(kind, "sigmoid")


def _family(prefix: str, config: Callable[[Fields, bool], EncoderConfig]) -> Family:
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


# config.json's name -> GGUF's.
_GGUF_KEYS = {
    "hidden_size": "bert.embedding_length",
    "intermediate_size": "bert.feed_forward_length",
    "num_hidden_layers": "bert.block_count",
    "num_attention_heads": "bert.attention.head_count",
    "context_length": "bert.context_length",
    "layer_norm_eps": "bert.attention.layer_norm_epsilon",
}


def gguf_fields(metadata: Mapping[str, Any], rows: Mapping[str, int]) -> Fields:
    """What GGUF's "bert" says, under config.json's names; RoBERTa's files use it too: their unused
    positions are cut off. `rows` of the tables are not in the metadata; the tables themselves tell.
    """
    values = {name: metadata[key] for name, key in _GGUF_KEYS.items() if key in metadata}
    return Fields({**values, **rows}, "gguf", _GGUF_KEYS)


def gguf_config(fields: Fields, pooling: Any) -> EncoderConfig:
    return replace(_bert(fields, False), scores=pooling == RANK)
