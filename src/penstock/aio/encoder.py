"""Texts to vectors for routing, judging and caching: the MiniLM that `penstock.hub` knows, in numpy.

One set of weights with the engine's embedding model and no package beyond numpy: for one short text this
takes about 1.7 times what an int8 model in onnxruntime takes, and for batches less.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.encoder_model import EncoderModel, build
from penstock.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from penstock.hub import Progress

MODEL: Final = "all-minilm-l6-v2"
WIDTH: Final = 384
# What lies behind cannot be among the first 256 tokens of ordinary text, and is not worth tokenizing.
MAX_CHARACTERS: Final = 8192
REMEMBERED_TEXTS: Final = 1024  # 1.5 KB each, besides the text
REMEMBERED_CHARACTERS: Final = 2048  # longer texts are not remembered


class Encoder:
    """Embeds texts. Takes milliseconds a text: live, call it in a thread; several may at once."""

    def __init__(self, model: EncoderModel, tokenizer: Any, *, longest: int) -> None:
        """`tokenizer` is one of the tokenizers package's; texts are cut to `longest` tokens."""
        tokenizer.no_padding()
        tokenizer.enable_truncation(longest)
        self._model = model
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._known: OrderedDict[str, NDArray[np.float32]] = OrderedDict()  # the latest used is last

    @property
    def width(self) -> int:
        return self._model.width

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A vector of length 1 for each text, [n, width]."""
        cut = [text[:MAX_CHARACTERS] for text in texts]
        vectors = np.empty((len(cut), self.width), np.float32)
        new: dict[str, list[int]] = {}  # text: the rows it is for
        with self._lock:
            for row, text in enumerate(cut):
                known = self._known.get(text)
                if known is None:
                    new.setdefault(text, []).append(row)
                else:
                    self._known.move_to_end(text)
                    vectors[row] = known
        if new:
            for (text, rows), vector in zip(new.items(), self._computed(list(new)), strict=True):
                vectors[rows] = vector
                self._remember(text, vector)
        return vectors

    def _computed(self, texts: list[str]) -> NDArray[np.float32]:
        # A lone surrogate, which JSON can spell, is no text to the tokenizer.
        readable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        # One by one: a batch would start the tokenizer's own threads beside those that were given.
        means = self._model.mean_states([self._tokenizer.encode(text).ids for text in readable])
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.float32(1e-12))
        return means

    def _remember(self, text: str, vector: NDArray[np.float32]) -> None:
        if len(text) > REMEMBERED_CHARACTERS:
            return
        with self._lock:
            self._known[text] = vector.copy()  # a row alone would keep its whole batch
            if len(self._known) > REMEMBERED_TEXTS:
                self._known.popitem(last=False)


def load_encoder(model: str = MODEL, *, progress: Progress | None = None) -> Encoder:
    """The encoder, fetched and checked first if it is not here; ConfigError says what stands in the way."""
    from penstock import hub

    try:
        return open_encoder(hub.resolve(model, progress=progress).path)
    except ModelError as error:
        raise ConfigError(f"The text encoder {model} cannot be used: {error}") from error


def open_encoder(folder: Path) -> Encoder:
    """The encoder in a folder of safetensors, its pooling the mean; ModelError where it is another kind."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    from penstock.hub.safetensors import SafetensorsFolder, read_json

    files = SafetensorsFolder(folder)
    config = files.config
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        kind = f"{config.get('model_type')!r} with {config.get('hidden_act')!r}"
        raise ModelError(f"{folder} holds a model of type {kind}, not 'bert' with 'gelu'; use {MODEL}.")
    tensors: dict[str, NDArray[np.float32]] = {}
    for file in sorted({entry.file for entry in files.tensors.values()}):
        with safe_open(file, "numpy") as opened:
            names = [name for name, entry in files.tensors.items() if entry.file == file]
            tensors.update({name: opened.get_tensor(name) for name in names if "position_ids" not in name})
    try:
        built = build(
            tensors,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            epsilon=config["layer_norm_eps"],
        )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except KeyError as error:
        raise ModelError(f"{folder} lacks {error}; download the model again.") from None
    longest = read_json(folder / "sentence_bert_config.json")["max_seq_length"]
    return Encoder(built, tokenizer, longest=min(longest, config["max_position_embeddings"]))
