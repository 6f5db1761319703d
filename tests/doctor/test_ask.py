"""Asking torch and the driver, whatever state they are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.doctor.ask import Opinion, ask_driver, ask_torch
from penstock.doctor.kernels import look_at_kernels
from tests.engine.tiny import save_tiny_llama


def stand_in(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that does this when it is imported, ahead of the real one."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_torch_says_what_it_is_and_which_models_the_engine_takes(tmp_path: Path) -> None:
    good, unknown, incomplete = tmp_path / "good", tmp_path / "unknown", tmp_path / "incomplete"
    save_tiny_llama(good)
    save_tiny_llama(incomplete, tie_word_embeddings=True)
    (incomplete / "config.json").write_bytes((good / "config.json").read_bytes())
    save_tiny_llama(unknown, architectures=["SomethingForCausalLM"])
    probe = ask_torch([str(good), str(unknown), str(incomplete)])
    assert probe.error is None
    assert probe.torch is not None
    assert probe.torch.version.startswith("2.")
    assert probe.torch.threads >= 1
    assert probe.models[str(good)] == Opinion(
        task="generate",
        architecture="llama",
        kv_per_token=2 * 2 * 2 * 8,
        context=256,
        int8=look_at_kernels().usable is not None,
    )
    assert "SomethingForCausalLM" in str(probe.models[str(unknown)].refusal)
    lacking = probe.models[str(incomplete)].refusal
    assert "'lm_head.weight'" in str(lacking)


def test_a_torch_that_cannot_be_imported_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "raise OSError('libtorch.so: cannot open\\nmore lines')", monkeypatch)
    probe = ask_torch()
    assert probe.torch is None
    assert probe.error == "OSError: libtorch.so: cannot open."


def test_a_torch_that_takes_the_process_with_it_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, sys; print('Illegal instruction', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    )
    stand_in(tmp_path, code, monkeypatch)
    assert ask_torch().error == "The process that imported it ended with signal 9: Illegal instruction"


def test_a_torch_that_never_comes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "import time; time.sleep(60)", monkeypatch)
    monkeypatch.setattr("penstock.doctor.ask.PROBE_SECONDS", 0.5)
    assert "longer than" in str(ask_torch().error)


def test_a_torch_that_talks_is_still_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "print('{} hello'); raise ImportError", monkeypatch)
    assert ask_torch().error == "ImportError."


def test_without_torch_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    probe = ask_torch(["x"])
    assert (probe.torch, probe.error, probe.models) == (None, None, {})


def test_the_driver_lists_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA One, 81559, 80000'\necho 'NVIDIA Two, [N/A], [N/A]'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    one, two = ask_driver()
    assert (one.name, one.memory_total, one.memory_free) == ("NVIDIA One", 81559 << 20, 80000 << 20)
    assert (two.name, two.memory_total) == ("NVIDIA Two", 0)


def test_a_driver_that_fails_or_is_not_there_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_driver() == ()
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'NVIDIA-SMI has failed because it couldn'\\''t talk to the driver.'\nexit 9\n"
    )
    tool.chmod(0o755)
    assert ask_driver() == ()
