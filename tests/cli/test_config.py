"""`penstock config`: what a file means, all that is wrong with it, who answers; and LiteLLM's converted."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.cli import config_connect
from penstock.cli.app import run

GOOD = """
models:
  chat:
    aliases: [small]
    backends:
      - engine: default
        replicas: 2
        max_running: 16
      - vllm: http://10.0.0.5:8000
        api_key: topsecret
        headers: {X-Key: alsosecret}
        vision: true
    price: {input: 0.15, output: 0.60}
    fallbacks: [large]
  large: {backends: [{kind: sglang, discover: {dns: "sglang.svc:30000"}}]}
tenants:
  acme: {class: interactive, tokens_per_minute: 100k, models: [chat]}
"""


@pytest.fixture(autouse=True)
def clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)


def write(text: str, name: str = "penstock.yaml") -> None:
    Path(name).write_text(text, encoding="utf-8")


def test_a_right_file_is_shown_as_it_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD)
    assert run(["config", "check"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("penstock.yaml: 2 models, 3 backends, 1 tenant; listens on 127.0.0.1:8000")
    for part in (
        "default x 2",
        "max_running 16",
        "http://10.0.0.5:8000",
        "vision, with key",
        "0.15 / 0.15 / 0.6",
    ):
        assert part in shown
    for part in ("found by sglang.svc:30000", "acme", "interactive", "100,000"):
        assert part in shown
    assert "secret" not in shown


def test_without_a_file_the_one_model_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "check"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("No penstock.yaml: 1 model, 1 backend, 0 tenants")
    assert "default x 1" in shown


def test_options_that_a_server_does_not_have_are_mistakes_with_their_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(
        "models:\n  chat:\n    backends:\n      - engine: default\n      - vllm: http://x\n"
        "        options: {prefx: /v2}\n  talk:\n    backends:\n      - kind: triton\n"
        "        discover: {register: true}\n        options:\n          max_tokens: 0\n"
    )
    assert run(["config", "check"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert "models.chat.backends[1].options in penstock.yaml, line 6, cannot be used" in first
    assert "unknown field `prefx`" in first
    assert "models.talk.backends[0].options in penstock.yaml, line 11, cannot be used" in second
    assert run(["config", "check", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [problem["line"] for problem in report["problems"]] == [6, 11]


def test_all_mistakes_are_listed_and_the_exit_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    write("port: http\nmodels: {chat: {}}\nqeue: {}\n", "other.yaml")
    assert run(["config", "check", "other.yaml"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("penstock: port in other.yaml, line 1, must be a whole number")
    assert lines[1].startswith("penstock: models.chat in other.yaml, line 2, has no backends")
    assert lines[2].endswith("line 3, is not a known key; the nearest known one is 'queue'.")


def test_traces_that_could_not_be_sent_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD + 'tracing: {endpoint: "http://127.0.0.1:4318", headers: {"a b": secret}}\n')
    assert run(["config", "check"]) == 2
    said = capsys.readouterr().err
    assert "tracing in penstock.yaml, line 18" in said
    assert "The header 'a b' for traces is none that HTTP has" in said
    assert "secret" not in said


def test_warnings_do_not_fail_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    write("models: {chat: {backends: [{engine: default}], price: {input: 1, cached_input: 2}}}\n")
    assert run(["config", "check"]) == 0
    assert "warning  models.chat.price charges more for cached prompt tokens" in capsys.readouterr().out


def test_json_says_the_same_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD)
    assert run(["config", "check", "--json"]) == 0
    text = capsys.readouterr().out
    assert "secret" not in text
    report = json.loads(text)
    assert report["ok"] is True
    assert report["models"][0]["backends"][1]["api_key"] is True
    assert report["models"][0]["backends"][1]["headers"] == ["X-Key"]
    assert report["tenants"][0]["tokens_per_minute"] == 100_000
    write("port: http\nhost: 1\n")
    assert run(["config", "check", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [(problem["place"], problem["line"]) for problem in report["problems"]] == [
        ("port", 1),
        ("host", 2),
    ]


@pytest.mark.parametrize("text", ["a: [b\n", "- a\n"])
def test_what_is_no_configuration_at_all_is_one_sentence(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(text)
    assert run(["config", "check"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["config", "check", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["problems"][0]["sentence"].startswith("penstock.yaml ")


def test_a_file_that_is_not_there_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["config", "check", "none.yaml"], ["config", "from-litellm", "none.yaml"]):
        assert run(command) == 2
        assert capsys.readouterr().err == "penstock: none.yaml is not a file; correct the path.\n"


LADDER = """
models:
  small: {aliases: [tiny], backends: [{vllm: "http://127.0.0.1:1"}], price: {input: 0.1, output: 0.4}}
  large: {backends: [{vllm: "http://127.0.0.1:2"}], price: {input: 5, output: 15}}
tiers:
  quick: {model: small}
  thorough: {model: large}
"""


def test_tiers_that_cannot_be_weighed_are_mistakes_with_their_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(LADDER.replace("model: small}", "model: small, like: GPT-17}"))
    assert run(["config", "check", "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["place"], problem["line"]) == ("tiers.quick", 6)
    assert "is like 'GPT-17', of which the predictor" in problem["sentence"]
    assert "Phi-3-mini" in problem["sentence"]
    # A server says so at once, and not when its models are loaded.
    assert run(["serve", "--port", "0", "--state-dir", "state"]) == 2
    assert "The tier 'quick' is like 'GPT-17'" in capsys.readouterr().err


def test_a_predictor_that_cannot_be_read_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    write(LADDER + "routing: {predictor: ./none.npz}\n")
    assert run(["config", "check"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("penstock: routing.predictor in penstock.yaml, line 8, cannot be used: ")
    assert "none.npz" in said


def test_a_target_that_a_tenant_cannot_get_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        LADDER + "tenants:\n  free: {}\n  frugal: {max_cost: 0.001}\n  bound: {models: [tiny]}\n"
        "  modest: {models: [tiny], quality_target: 0.1}\n  broke: {max_cost: 0.000001}\n"
        "  pinned: {tier: quick}\n"
    )
    assert run(["config", "check", "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [warning.split()[0] for warning in warnings] == [
        "tenants.frugal",
        "tenants.bound",
        "tenants.broke.max_cost",
    ]
    assert "with what it may use and spend (quick) at most" in warnings[0]


class Server(BaseHTTPRequestHandler):
    """Speaks as much as is asked: a list of models for those with the key, and Triton's readiness."""

    def do_GET(self) -> None:
        status, body = 404, b"{}"
        if self.path == "/v1/models":
            allowed = "right" in (self.headers.get("authorization") or self.headers.get("x-api-key") or "")
            status = 200 if allowed else 401
            body = b'{"object": "list", "data": [{"id": "org/known"}]}'
        elif self.path == "/odd/v1/models":
            status, body = 200, b"<html>"
        elif self.path in ("/v2/health/ready", "/v2/models/known/ready"):
            status = 200
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listener.server_address[1]}"
        listener.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("backend", "code", "said"),
    [
        ("vllm: URL, model: org/known, api_key: right", 0, "answers, and knows 'org/known'"),
        ("anthropic: URL, model: org/known, api_key: right", 0, "answers, and knows 'org/known'"),
        ("vllm: URL, api_key: right", 1, "answers, but does not know 'chat'; it has: org/known"),
        ("vllm: URL, api_key: wrong", 1, "answers 401: it does not accept the key"),
        ("vllm: URL/odd", 1, "answers, but not with a list of models"),
        ("vllm: URL, options: {prefix: /odd/v1}", 1, "answers, but not with a list of models"),
        ("vllm: URL/none", 1, "answers 404 to"),
        ("triton: URL, model: known", 0, "answers, and 'known' is ready"),
        ("triton: URL, model: other", 1, "answers, but 'other' is not ready there"),
        ("triton: URL/none", 1, "answers 404: it is not ready"),
        ("vllm: 'http://127.0.0.1:1'", 1, "http://127.0.0.1:1 cannot be reached"),
        ("engine: default", 0, "default x 1"),
    ],
)
def test_connect_asks_each_server_for_its_model(
    server: str, backend: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"models: {{chat: {{backends: [{{{backend.replace('URL', server)}}}]}}}}")
    assert run(["config", "check", "--connect"]) == code
    assert said in capsys.readouterr().out


def test_a_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config_connect, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        write(f"models: {{chat: {{backends: [{{vllm: 'http://127.0.0.1:{silent.getsockname()[1]}'}}]}}}}\n")
        assert run(["config", "check", "--connect", "--json"]) == 1
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["good"] is False
    assert "no answer within 0.2 s" in answer["sentence"]


LITELLM = """
model_list:
  - model_name: chat
    litellm_params: {model: hosted_vllm/a, api_base: "http://10.0.0.5:8000", rpm: 5, api_key: topsecret}
"""


def test_litellms_file_becomes_one_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    write(LITELLM, "config.yaml")
    assert run(["config", "from-litellm", "config.yaml", "-o", "penstock.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "penstock: wrote penstock.yaml" in captured.err
    assert "note: model_list[0] (chat).litellm_params.rpm: limits are a tenant's" in captured.err
    assert "topsecret" not in captured.err
    assert Path("penstock.yaml").stat().st_mode & 0o077 == 0
    assert run(["config", "check"]) == 0
    assert "http://10.0.0.5:8000" in capsys.readouterr().out


def test_it_goes_to_the_terminal_unless_a_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    write(LITELLM, "config.yaml")
    assert run(["config", "from-litellm", "config.yaml"]) == 0
    assert "- vllm: http://10.0.0.5:8000" in capsys.readouterr().out


def test_a_file_that_exists_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    write(LITELLM, "config.yaml")
    write("port: 1\n")
    assert run(["config", "from-litellm", "config.yaml", "-o", "penstock.yaml"]) == 2
    assert "penstock.yaml exists already" in capsys.readouterr().err
    assert Path("penstock.yaml").read_text() == "port: 1\n"
    assert run(["config", "from-litellm", "config.yaml", "-o", "none/penstock.yaml"]) == 2
    assert "cannot be written" in capsys.readouterr().err
