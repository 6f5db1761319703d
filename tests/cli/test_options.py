"""Flags become settings, in our spelling and in vLLM's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.cli.app import run
from penstock.config import Settings


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that `penstock serve` would serve with."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    settings: list[Settings] = []
    monkeypatch.setattr("penstock.gateway.server.run", lambda given, reread: settings.append(given))
    return settings


def test_without_flags_the_defaults_are_served(served: list[Settings]) -> None:
    assert run(["serve"]) == 0
    assert served == [Settings()]


def test_vllm_spellings_are_accepted(served: list[Settings]) -> None:
    command = (
        "serve org/name --max-model-len 4K --gpu-memory-utilization 0.5 --max-num-batched-tokens 2k "
        "--max-num-seqs 32 --enable-chunked-prefill --no-enable-prefix-caching "
        "--served-model-name a --served-model-name b --host localhost --port 9000 --api-key k1 --api-key k2 "
        "--block-size 32 --dtype float32 --device cuda --kv-cache-dtype fp8 --load-format dummy "
        "--enforce-eager"
    )
    assert run(command.split()) == 0
    assert served == [
        Settings(
            model="org/name",
            max_model_len=4096,
            memory_fraction=0.5,
            max_step_tokens=2000,
            max_running=32,
            prefix_caching=False,
            served_model_names=("a", "b"),
            host="localhost",
            port=9000,
            api_keys=("k1", "k2"),
            block_size=32,
            precision="float32",
            device="cuda",
            kv_precision="fp8",
            load_format="dummy",
            without=("graphs",),
        )
    ]


def test_our_spellings_are_accepted(served: list[Settings]) -> None:
    command = (
        "serve --max-running 4 --max-step-tokens 128 --max-waiting 7 --arrival-window 20ms --threads 1 "
        "--kv-cache-memory 1GiB --drain-seconds 5 --memory-fraction 0.8 --no-prefix-caching --allow-public "
        "--log-level debug --ageing-seconds 3 --precision bfloat16 --kv-precision fp8 --load-format random "
        "--without graphs --without overlap"
    )
    assert run(command.split()) == 0
    assert served == [
        Settings(
            max_running=4,
            max_step_tokens=128,
            max_waiting=7,
            arrival_window=0.02,
            kv_cache_memory=2**30,
            threads=1,
            drain_seconds=5.0,
            memory_fraction=0.8,
            prefix_caching=False,
            allow_public=True,
            log_level="debug",
            ageing_seconds=3.0,
            precision="bfloat16",
            kv_precision="fp8",
            load_format="random",
            without=("graphs", "overlap"),
        )
    ]


def test_flags_win_over_environment_over_file(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.yaml").write_text("port: 1\nhost: file\nmodel: file\nthreads: 1\n")
    monkeypatch.setenv("PENSTOCK_PORT", "2")
    monkeypatch.setenv("PENSTOCK_HOST", "environment")
    assert run(["serve", "--config", "mine.yaml", "--port", "3"]) == 0
    assert served == [Settings(port=3, host="environment", model="file", threads=1)]


def test_the_same_option_in_two_spellings_is_a_mistake(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--max-running", "3", "--max-num-seqs", "4"]) == 2
    assert "--max-running and --max-num-seqs are the same option" in capsys.readouterr().err
    assert not served


def test_turning_chunked_prefill_off_is_refused_with_the_reason(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--no-enable-chunked-prefill"]) == 2
    assert "prompts are always computed in chunks" in capsys.readouterr().err
    assert not served


def test_the_help_mentions_vllm_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in (
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--gpu-memory-utilization",
        "--enable-prefix-caching",
    ):
        assert flag in text
