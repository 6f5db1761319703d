"""The `llm` command, in an environment of its own, set up as its documentation says for other servers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.environments import environment
from tests.server import Server

QUESTION = "Name three colours."
GREEDY = ("-o", "temperature", "0", "-o", "max_tokens", "12")


class Llm:
    """The command of a user whose `extra-openai-models.yaml` names the server's models."""

    def __init__(self, folder: Path, server: Server, model_name: str) -> None:
        self._command = environment("llm") / "llm"
        self._environ = {**os.environ, "LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "any"}
        served = {"model_name": model_name, "api_base": f"{server.url}/v1"}
        models = [
            {"model_id": "penstock", **served, "supports_schema": True, "supports_tools": True},
            {"model_id": "completion", **served, "completion": True},
            {"model_id": "gone", **served, "model_name": "gpt-5"},
        ]
        (folder / "extra-openai-models.yaml").write_text(yaml.safe_dump(models))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._command, *arguments],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def said(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.removesuffix("\n")

    def refused(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stdout.strip()) == (1, "")
        return done.stderr

    def logged(self, count: int) -> list[dict[str, Any]]:
        """The last entries of its log, oldest first."""
        return list(json.loads(self.said("logs", "--json", "-n", str(count))))


@pytest.fixture(scope="module")
def llm(server: Server, model_name: str, tmp_path_factory: pytest.TempPathFactory) -> Llm:
    return Llm(tmp_path_factory.mktemp("llm"), server, model_name)


def test_a_streamed_answer_is_the_whole_one_and_a_conversation_goes_on_from_it(llm: Llm) -> None:
    streamed = llm.said("-m", "penstock", QUESTION, *GREEDY)
    assert streamed
    assert llm.said("-m", "penstock", "--no-stream", QUESTION, *GREEDY) == streamed
    further = llm.said("-c", "Why?", *GREEDY)

    entries = llm.logged(3)
    assert [entry["response"] for entry in entries] == [streamed, streamed, further]
    kinds = [entry["response_json"]["object"] for entry in entries]
    assert kinds == ["chat.completion.chunk", "chat.completion", "chat.completion.chunk"]
    assert [entry["output_tokens"] for entry in entries[:2]] == [12, 12]
    assert entries[0]["input_tokens"] == entries[1]["input_tokens"]
    assert entries[2]["conversation_id"] == entries[1]["conversation_id"]
    assert entries[2]["input_tokens"] > entries[1]["input_tokens"] + 12


def test_options_and_a_system_prompt_go_through_and_usage_is_shown(llm: Llm) -> None:
    done = llm.run(
        "-m", "penstock", QUESTION, "-s", "Be brief.", *GREEDY, "-o", "stop", ":", "-o", "seed", "1",
        "-o", "frequency_penalty", "0.1", "-o", "presence_penalty", "0.1", "-u",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ":" not in done.stdout
    assert "output" in done.stderr


def test_a_plain_completion(llm: Llm) -> None:
    assert "Paris" in llm.said("-m", "completion", "The capital of France is", *GREEDY)


def test_the_async_client(llm: Llm) -> None:
    assert llm.said("-m", "penstock", "--async", QUESTION, *GREEDY)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-m", "gone", "x"), "404 - The model 'gpt-5' is not served here"),
        (("-m", "gone", "--no-stream", "x"), "404 - The model 'gpt-5' is not served here"),
        (("-m", "penstock", "x", "--schema", "name, age int"), "400 - response_format is not supported"),
        (("-m", "penstock", "x", "-T", "llm_version"), "400 - tools is not supported"),
        (
            ("-m", "penstock", "x", "-o", "logit_bias", '{"99999": 1}'),
            "400 - logit_bias names token id 99999",
        ),
    ],
)
def test_what_is_refused_is_said_to_the_user_in_our_words(
    llm: Llm, arguments: tuple[str, ...], said: str
) -> None:
    assert llm.refused(*arguments).startswith(f"Error: Error code: {said}")
