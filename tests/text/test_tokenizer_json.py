"""Tokenizers from tokenizer.json, of both spellings, trained here on a few sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from penstock.engine.request import SamplingParams
from penstock.errors import ModelError
from penstock.hub import ModelFiles
from penstock.text.chat import ChatTemplate
from penstock.text.stream import TextStream
from penstock.text.tokenizer import Tokenizer

CORPUS = [
    "The gate opens, and water falls on the wheel.",
    "Der Müller mahlt das Korn.",
    "水 falls 😀 1234",
] * 20
CONTROL = ["<s>", "</s>", "<|end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def sentencepiece(scheme: str) -> tokenizers.Tokenizer:
    """With byte fallback, and the space before the first word put there in one of the three ways in use."""
    backend = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    if scheme == "normalizer":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
        backend.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme, split=False)]
        )
    trained = tokenizers.Tokenizer(models.BPE())
    # Spaces begin tokens, as in all real ones: of those within a first token the library loses each.
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", *BYTES], show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    backend.model = models.BPE(vocab=model["vocab"], merges=merges, byte_fallback=True, unk_token="<unk>")
    return backend


BACKENDS = {
    "byte level": byte_level,
    "space by normalizer": lambda: sentencepiece("normalizer"),
    "space before the first word": lambda: sentencepiece("first"),
    "space before every segment": lambda: sentencepiece("always"),
    "no space": lambda: sentencepiece("never"),
}


def write(folder: Path, backend: tokenizers.Tokenizer, **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def load(folder: Path) -> Tokenizer:
    return Tokenizer.load(ModelFiles("test", folder, "safetensors"))


def with_control(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    backend.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return backend


@pytest.fixture(scope="module", params=BACKENDS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Ours, and the library's own for the same file."""
    backend = with_control(BACKENDS[request.param]())
    return load(write(tmp_path_factory.mktemp("model"), backend)), backend


pieces = st.sampled_from([*CONTROL, "<tool>", " ", "the", " water", "é", "水", "😀", "\n", "12", "<|", "x"])
texts = st.lists(pieces | st.text(max_size=3), max_size=12).map("".join)


@given(text=texts)
@example(text="<s>😀 12")
def test_ids_and_text_are_those_of_the_library(
    pair: tuple[Tokenizer, tokenizers.Tokenizer], text: str
) -> None:
    ours, library = pair
    ids = ours.encode(text)
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert ours.decode([i for i in ids if i not in ours.special_ids]) == library.decode(ids)


@given(text=texts)
def test_a_rendered_template_is_cut_at_control_tokens_as_the_library_does_it(
    pair: tuple[Tokenizer, tokenizers.Tokenizer], text: str
) -> None:
    ours, _ = pair
    assert ours.encode_marked(text, "\ue000") == ours.encode(text)


@given(text=texts)
def test_no_control_token_comes_from_plain_text(
    pair: tuple[Tokenizer, tokenizers.Tokenizer], text: str
) -> None:
    ours, _ = pair
    assert not ours.special_ids.intersection(ours.encode(text, parse_special=False))


def test_a_token_of_the_vocabulary_that_is_not_control_is_parsed_always(
    pair: tuple[Tokenizer, tokenizers.Tokenizer],
) -> None:
    ours, library = pair
    assert library.token_to_id("<tool>") in ours.encode("a<tool>b", parse_special=False)


def test_streamed_bytes_make_whole_characters(pair: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    ours, _ = pair
    text = "Ω水😀 gate"
    stream = TextStream(ours, SamplingParams())
    shown = [stream.push(i) for i in ours.encode(text)]
    assert ("".join(shown) + stream.finish()).removeprefix(" ") == text
    assert "\ufffd" not in stream.text


def test_white_space_that_a_control_token_takes_is_taken_in_templates_too(tmp_path: Path) -> None:
    backend = byte_level()
    backend.add_special_tokens(
        [AddedToken("<|end|>", rstrip=True, special=True), AddedToken("<l>", lstrip=True, special=True)]
    )
    ours = load(write(tmp_path, backend))
    for text in ("a<|end|>\n\n b", "a  <l> b", "<|end|>  <l>", "a<|end|>"):
        assert ours.encode_marked(text, "\ue000") == ours.encode(text)
        assert ours.encode(text) == backend.encode(text).ids


def test_added_tokens_have_one_id_in_both_modes(tmp_path: Path) -> None:
    backend = byte_level()
    backend.add_tokens(["<tool>"])
    backend.add_special_tokens(["<s>"])
    backend.add_tokens(["<more>"])
    ours = load(write(tmp_path, backend))
    assert ours.encode("<tool>x<more>", parse_special=False) == ours.encode("<tool>x<more>")
    assert ours.encode("<s><more>") == [backend.token_to_id("<s>"), backend.token_to_id("<more>")]


@pytest.mark.parametrize(
    ("settings", "bos", "adds"),
    [
        ({"bos_token": "<s>"}, "<s>", True),  # the post-processor adds it
        ({"bos_token": {"content": "<s>"}, "add_bos_token": False}, "<s>", False),
        ({"bos_token": None}, None, False),
        ({}, "<s>", True),  # named by config.json alone
    ],
)
def test_the_begin_token_follows_the_files(
    tmp_path: Path, settings: dict[str, Any], bos: str | None, adds: bool
) -> None:
    backend = with_control(byte_level())
    begin = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    ours = load(write(tmp_path, backend, tokenizer_config=settings, config={"bos_token_id": begin}))
    assert ours.bos_token_id == (begin if bos else None)
    assert (ours.encode("a")[0] == begin) is adds
    assert begin not in ours.encode("a", add_bos=False)


def test_every_token_that_ends_generation_is_known(tmp_path: Path) -> None:
    backend = with_control(byte_level())
    a, b, end = (backend.token_to_id(text) for text in ("a", "b", "<|end|>"))
    ours = load(
        write(
            tmp_path,
            backend,
            tokenizer_config={"eos_token": "</s>"},
            generation_config={"eos_token_id": [a, b]},
            config={"eos_token_id": a},
        )
    )
    assert ours.eos_token_ids == (backend.token_to_id("</s>"), a, b, end)
    assert ours.named_tokens["eos_token"] == "</s>"


@pytest.mark.parametrize("place", ["file", "settings", "list"])
def test_the_chat_template_is_found_wherever_it_is_kept(tmp_path: Path, place: str) -> None:
    settings: dict[str, Any] = {}
    if place == "settings":
        settings["chat_template"] = "T{{ messages[0].content }}"
    elif place == "list":
        settings["chat_template"] = [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "T{{ messages[0].content }}"},
        ]
    folder = write(tmp_path, byte_level(), tokenizer_config=settings)
    if place == "file":
        (folder / "chat_template.jinja").write_text("T{{ messages[0].content }}")
    ours = load(folder)
    prompt = ChatTemplate(ours.chat_template, ours).encode([{"role": "user", "content": "x"}])
    assert ours.decode(prompt) == "Tx"


def test_truncation_and_padding_of_the_file_are_not_ours(tmp_path: Path) -> None:
    backend = byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=5)
    ours = load(write(tmp_path, backend))
    assert ours.decode(ours.encode("xyzxyzxyz")) == "xyzxyzxyz"
    assert len(ours.encode("x")) == 1


def test_turn_markers_are_control_tokens_whatever_the_file_calls_them(tmp_path: Path) -> None:
    backend = byte_level()
    backend.add_tokens([AddedToken("<end_of_turn>", special=False, normalized=False)])
    ours = load(write(tmp_path, backend))
    marker = backend.token_to_id("<end_of_turn>")
    assert ours.encode("a<end_of_turn>")[-1] == marker
    assert marker not in ours.encode("a<end_of_turn>", parse_special=False)
    assert ours.eos_token_ids == (marker,)


def test_a_marker_that_merges_could_spell_is_not_spelled_by_text(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(
        models.BPE({"<": 0, "s": 1, ">": 2, "<s": 3, "<s>": 4}, [("<", "s"), ("<s", ">")])
    )
    backend.decoder = decoders.ByteFallback()
    backend.add_special_tokens(["<s>"])
    ours = load(write(tmp_path, backend))
    assert ours.encode("<s>") == [4]
    assert ours.encode("<s>", parse_special=False) == [3, 2]


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither a tokenizer\.json nor a tokenizer\.model"):
        load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"model": 1}', "\x00"])
def test_a_broken_tokenizer_json_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load(tmp_path)


def test_a_decoder_of_another_kind_is_refused(tmp_path: Path) -> None:
    backend = byte_level()
    backend.decoder = decoders.CTC()
    with pytest.raises(ModelError, match="decoder of kind CTC"):
        load(write(tmp_path, backend))


def test_a_marker_among_the_pieces_of_a_unigram_model_is_not_spelled_by_text(tmp_path: Path) -> None:
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0), *((c, -2.0) for c in "</s>")]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, 2, False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["<s>", "</s>", "<unk>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    ours = load(write(tmp_path, backend))
    plain = [3, 4, 5, 6, 7]
    assert ours.encode("</s>", parse_special=False, add_bos=False) == plain
    assert ours.encode_pair("</s>", "</s>")[0] == [0, *plain, 1, 1, *plain, 1]
    assert ours.encode("</s>", add_bos=False) == [1]
