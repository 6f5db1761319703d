"""What is read from a model's header, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.doctor.ask import Opinion
from penstock.doctor.finding import Finding
from penstock.doctor.fit import Budget
from penstock.doctor.models import Examined, examine, judge_briefly, judge_fully, read_header
from penstock.errors import ModelError
from penstock.hub.files import ModelFiles
from tests.doctor.machines import GIB
from tests.engine.tiny import save_tiny_llama
from tests.hub.test_gguf import write_split

TAKEN = Opinion(task="generate", architecture="llama")
PLENTY = Budget(device="cpu", total=64 * GIB, available=64 * GIB)


@pytest.fixture
def tiny(tmp_path: Path) -> ModelFiles:
    return ModelFiles("tiny", save_tiny_llama(tmp_path / "tiny"), "safetensors")


def looked_at(files: ModelFiles, budget: Budget = PLENTY, opinion: Opinion | None = TAKEN) -> Examined:
    return examine("./tiny", files, budget, "auto", opinion)


def test_fp8_is_refused_where_there_is_no_gpu(tiny: ModelFiles) -> None:
    gpu = Budget(device="cuda", total=80 * GIB, available=80 * GIB)
    refused = examine("./tiny", tiny, PLENTY, "fp8", TAKEN)
    assert not refused.servable
    assert refused.refusal is not None
    assert "needs a GPU" in refused.refusal
    assert examine("./tiny", tiny, gpu, "fp8", TAKEN).servable


def test_a_gguf_files_header_is_read(default_model: Path) -> None:
    header = read_header(ModelFiles("x", default_model, "gguf"))
    assert (header.architecture, header.stored) == ("llama", "Q4_1")
    assert header.bytes == default_model.stat().st_size
    assert header.size.tied
    assert header.size.kv_per_token == 2 * 30 * 3 * 64


def test_the_bytes_of_a_split_model_are_those_of_all_its_parts(tmp_path: Path) -> None:
    sizes = {
        "attention.head_count": 4,
        "embedding_length": 32,
        "block_count": 2,
        "context_length": 64,
    }
    first = write_split(tmp_path, "model", 3, {f"llama.{name}": value for name, value in sizes.items()})
    header = read_header(ModelFiles("x", first, "gguf"))
    assert header.bytes == sum(file.stat().st_size for file in tmp_path.iterdir()) > first.stat().st_size


def test_a_folders_header_is_read(tiny: ModelFiles) -> None:
    header = read_header(tiny)
    assert (header.architecture, header.stored) == ("LlamaForCausalLM", "F32")
    assert header.bytes == (tiny.path / "model.safetensors").stat().st_size
    assert (header.size.kv_per_token, header.size.context) == (2 * 2 * 2 * 8, 256)
    assert (header.size.embedding, header.size.tied) == (256 * 32, False)
    layer = 32 * (32 + 16 + 16) + 32 * 32 + 3 * 32 * 64 + 2 * 32
    assert header.size.parameters == 2 * layer + 32 + 2 * 256 * 32


def test_a_tied_output_matrix_that_is_stored_again_is_not_counted_again(tiny: ModelFiles) -> None:
    apart = read_header(tiny).size
    config = json.loads((tiny.path / "config.json").read_text())
    (tiny.path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    tied = read_header(tiny).size
    assert tied.tied
    assert tied.parameters == apart.parameters - 256 * 32


def test_a_number_that_is_missing_or_makes_no_sense_is_named(tiny: ModelFiles) -> None:
    config = json.loads((tiny.path / "config.json").read_text())
    (tiny.path / "config.json").write_text(json.dumps(config | {"num_attention_heads": 0}))
    with pytest.raises(ModelError, match="makes no sense"):
        read_header(tiny)
    del config["num_hidden_layers"]
    (tiny.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="does not give 'num_hidden_layers'"):
        read_header(tiny)


def test_the_precision_is_chosen_as_the_engine_chooses_it(tmp_path: Path, default_model: Path) -> None:
    half = ModelFiles("x", save_tiny_llama(tmp_path / "half", torch_dtype="bfloat16"), "safetensors")
    header = read_header(half)
    assert header.precision("auto", "cpu") == "float32"
    assert header.precision("auto", "cpu", int8=True) == "int8"
    assert header.precision("float32", "cpu", int8=True) == "float32"
    assert header.precision("auto", "cuda", int8=True) == "bfloat16"
    assert header.precision("float16", "cuda") == "float16"
    assert header.precision("fp8", "cuda") == "fp8"
    assert read_header(ModelFiles("x", default_model, "gguf")).precision("auto", "cuda") == "float32"


def test_a_model_that_fits_comes_with_the_command_that_serves_it(tiny: ModelFiles) -> None:
    findings = judge_fully(looked_at(tiny), "Model ./tiny", PLENTY)
    assert [finding.name for finding in findings] == ["architecture", "weights", "KV cache", "verdict"]
    assert {finding.status for finding in findings} == {"ok"}
    assert findings[-1].command == "penstock serve ./tiny"
    assert "its whole context of 256 tokens" in findings[-1].sentence


def test_a_model_the_engine_refuses_is_a_problem_in_its_words(tiny: ModelFiles) -> None:
    model = looked_at(tiny, opinion=Opinion(refusal="It is of no known kind."))
    findings = judge_fully(model, "Model", PLENTY)
    assert [f.sentence for f in findings if f.status == "problem"] == ["It is of no known kind."]
    assert "verdict" not in [finding.name for finding in findings]
    assert not model.servable
    assert judge_briefly(model, "Models", PLENTY).status == "warning"


def test_without_torch_the_size_is_still_told(tiny: ModelFiles) -> None:
    findings = judge_fully(looked_at(tiny, opinion=None), "Model", PLENTY)
    assert findings[0].status == "note"
    assert findings[-1].name == "verdict"


def test_a_model_that_does_not_fit_is_a_problem(tiny: ModelFiles) -> None:
    small = Budget(device="cpu", total=GIB, available=GIB // 4)
    model = looked_at(tiny, small)
    verdict = judge_fully(model, "Model", small)[-1]
    assert verdict.status == "problem"
    assert verdict.sentence.startswith("It does not fit: ")
    assert verdict.command is None
    assert not model.servable


def test_a_model_that_fits_only_in_half_precision_is_told_so(default_model: Path) -> None:
    files = ModelFiles("x", default_model, "gguf")
    tight = Budget(device="cpu", total=GIB, available=GIB)
    verdict = judge_fully(examine("default", files, tight, "auto", TAKEN), "Model", tight)[-1]
    assert verdict.status == "warning"
    assert "As bfloat16 it fits" in verdict.sentence
    assert verdict.command == "penstock serve default --precision bfloat16"


def test_a_header_that_cannot_be_read_is_said_and_not_raised(tiny: ModelFiles) -> None:
    (tiny.path / "config.json").write_text("{")
    model = looked_at(tiny)
    assert model.header is None
    assert "not valid JSON" in str(model.refusal)
    assert judge_fully(model, "Model", PLENTY)[0].status == "problem"


def test_an_encoder_needs_no_cache_and_is_said_to_give_embeddings(tiny: ModelFiles) -> None:
    encoder = Opinion(task="embed", architecture="bert", kv_per_token=0, context=128)
    findings = judge_fully(looked_at(tiny, opinion=encoder), "Model", PLENTY)
    assert [finding.name for finding in findings] == ["architecture", "weights", "verdict"]
    assert (
        findings[0].sentence == "bert, safetensors, F32: one that Penstock runs, and that gives embeddings."
    )
    assert findings[-1].sentence.endswith("for texts of up to 128 tokens.")


def test_the_engines_numbers_go_before_those_of_the_header(tiny: ModelFiles) -> None:
    told = Opinion(task="generate", architecture="llama", kv_per_token=7, context=99)
    header = looked_at(tiny, opinion=told).header
    assert header is not None
    assert (header.size.kv_per_token, header.size.context, header.architecture) == (7, 99, "llama")


def test_a_model_without_a_tokenizer_has_no_verdict(tiny: ModelFiles) -> None:
    text = Finding("Model", "tokenizer", "problem", "There is none.")
    findings = judge_fully(looked_at(tiny), "Model", PLENTY, text)
    assert findings[-1] == text
    assert "penstock serve" not in repr(findings)
