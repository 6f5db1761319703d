"""What is said of a model's tokenizer and chat template."""

from __future__ import annotations

from pathlib import Path

from penstock.config import Settings
from penstock.doctor.text import judge_text
from penstock.hub.files import ModelFiles
from tests.engine.tiny import save_tiny_llama


def test_a_tokenizer_with_a_template_is_as_it_should_be(default_model: Path) -> None:
    finding = judge_text(ModelFiles("x", default_model, "gguf"), Settings(), "Model")
    assert (finding.status, finding.sentence) == ("ok", "49,152 tokens, with a chat template.")


def test_a_model_without_a_tokenizer_cannot_be_served(tmp_path: Path) -> None:
    files = ModelFiles("x", save_tiny_llama(tmp_path / "tiny"), "safetensors")
    finding = judge_text(files, Settings(), "Model")
    assert finding.status == "problem"
    assert str(files.path) in finding.sentence


def test_a_template_file_is_tried_as_the_server_would(tmp_path: Path, default_model: Path) -> None:
    files = ModelFiles("x", default_model, "gguf")
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for %}")
    finding = judge_text(files, Settings(chat_template=str(broken)), "Model")
    assert finding.status == "problem"
    assert "has an error in line 1" in finding.sentence
    assert judge_text(files, Settings(chat_template=str(tmp_path / "nowhere")), "Model").status == "problem"


def test_an_encoder_needs_no_template(default_model: Path) -> None:
    finding = judge_text(ModelFiles("x", default_model, "gguf"), Settings(), "Model", chats=False)
    assert (finding.status, finding.sentence) == ("ok", "49,152 tokens.")


def test_a_model_without_a_template_still_completes(tmp_path: Path, default_model: Path) -> None:
    from penstock.hub.gguf import GGUFFile

    assert GGUFFile(default_model).metadata["tokenizer.chat_template"]
    bare = tmp_path / "bare.gguf"
    # The key is renamed in a copy, to another of the same length.
    data = default_model.read_bytes()[: 8 << 20]
    bare.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_tempIate"))
    finding = judge_text(ModelFiles("x", bare, "gguf"), Settings(), "Model")
    assert finding.status == "note"
    assert "chat requests will be refused" in finding.sentence
