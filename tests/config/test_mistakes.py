"""Every mistake in a file is found, and said with its place and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import examine, load_settings
from penstock.config.document import MAX_BYTES
from penstock.config.problems import Mistakes
from penstock.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(text: str, **environ: str) -> list[str]:
    Path("penstock.yaml").write_text(text, encoding="utf-8")
    examined = examine(environ=environ)
    assert (examined.settings is None) == bool(examined.problems)
    sentences = [problem.sentence for problem in examined.problems]
    for sentence in sentences:
        assert sentence.endswith(".")
        assert "\n" not in sentence
    return sentences


def in_model(text: str) -> list[str]:
    return problems(f"models:\n  chat: {{{text}}}\n")


def in_backend(text: str, **environ: str) -> list[str]:
    return problems(f"models:\n  chat:\n    backends:\n      - {{{text}}}\n", **environ)


def test_all_of_them_are_found_at_once_in_the_order_of_lines() -> None:
    found = problems(
        "port: http\nmodels:\n  chat:\n    balance: nearest\n    backends: []\nqueue: {wait: -1}\n"
    )
    assert [sentence.split(" must")[0].split(" has")[0] for sentence in found] == [
        "port in penstock.yaml, line 1,",
        "models.chat in penstock.yaml, line 3,",
        "models.chat.balance in penstock.yaml, line 4,",
        "queue.wait in penstock.yaml, line 6,",
    ]


def test_loading_says_the_first_and_how_many_more() -> None:
    Path("penstock.yaml").write_text("port: http\nhost: 3\nqueue: 1\n")
    with pytest.raises(Mistakes) as caught:
        load_settings(environ={})
    assert str(caught.value).startswith("port in penstock.yaml, line 1, must be a whole number")
    assert str(caught.value).endswith("(2 more: see `penstock config check`).")
    assert [problem.line for problem in caught.value.problems] == [1, 2, 3]


ENGINE = "backends: [{engine: default}]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{ENGINE}, balanc: prefix", ".balanc in penstock.yaml, line 2, is not a known key; the nearest"),
        (f"{ENGINE}, balance: prefx", "session (the nearest is 'prefix'), got 'prefx'"),
        (f"{ENGINE}, price: {{input: -1}}", "price.input in penstock.yaml, line 2, must be an amount"),
        (f"{ENGINE}, price: {{output: .nan}}", "got .nan"),
        (f"{ENGINE}, price: {{output: .inf}}", "got .inf"),
        (f"{ENGINE}, price: {{output: 1e-7}}", "must be 0 or at least 0.000001 USD for 1M tokens"),
        (
            f"{ENGINE}, price: cheap",
            "price in penstock.yaml, line 2, must hold 'key: value' lines, got 'cheap'",
        ),
        (f"{ENGINE}, max_tokens: 4.5", "must be a whole number from 1 to 10^15"),
        (f"{ENGINE}, max_tokens: 0", "got 0"),
        (f"{ENGINE}, prompt_budget: [1]", "got a list"),
        (f"{ENGINE}, fallbacks: [chta]", "names the model 'chta', which there is not; the nearest is 'chat'"),
        (f"{ENGINE}, fallbacks: [chat]", "is the model itself"),
        (f"{ENGINE}, aliases: [auto]", "takes the name 'auto', which asks for a model to be chosen"),
        (f"{ENGINE}, aliases: [chat]", "takes the name 'chat', which models.chat has already"),
        (f"{ENGINE}, slo: {{ttft: 0}}", "must be a time above 0"),
        ("", "has no backends"),
        ("backends: {engine: default}", "must be a list, each item with a '-' before it, got a section"),
    ],
)
def test_in_a_model(text: str, said: str) -> None:
    (sentence,) = in_model(text)
    assert said in sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm: '10.0.0.5:8000'", "vllm in penstock.yaml, line 4, has no scheme; write http:// or https://"),
        ("vllm: 'ftp://x'", "must be http or https, got 'ftp://x'"),
        ("vllm: 'http://'", "is not an address"),
        ("vllm: 'http://x:99999'", "is not an address"),
        ("vllm: 'http://x?a=b'", "must end before the '?'"),
        ("vllm: 'http://x/ü'", "is not an address: it must be ASCII"),
        ("kind: vlm, url: 'http://x'", "(the nearest is 'vllm'), got 'vlm'"),
        ("url: 'http://x'", "does not say what kind of backend it is"),
        ("vllm: 'http://x', sglang: 'http://y'", "is both 'vllm' and 'sglang'"),
        ("kind: sglang, vllm: 'http://y'", "is both 'sglang' and 'vllm'"),
        ("vllm: 'http://x', url: 'http://y'", "url in penstock.yaml, line 4, is the same option as 'vllm'"),
        ("kind: vllm", "has neither a url nor a way to discover one"),
        ("vllm: 'http://x', discover: {file: f}", "cannot stand beside 'vllm'"),
        (
            "kind: vllm, discover: {dns: 'x:1', file: f}",
            "exactly one source, dns, file or register; got dns and file",
        ),
        ("kind: vllm, discover: {}", "exactly one source, dns, file or register; got none"),
        ("kind: vllm, discover: {dns: 'http://x'}", "must be 'name:port' or 'srv:name'"),
        ("kind: openai, discover: {dns: 'x:1'}, api_key: k", "means nothing to openai"),
        ("openai: ", "write 'api_key: ${OPENAI_API_KEY}'"),
        ("vllm: 'http://x', max_num_seqs: 3", ".max_num_seqs in penstock.yaml, line 4, is for engines"),
        ("vllm: 'http://x', replicas: 2", "is for engines that are started here"),
        ("engine: default, replicas: 0", "must be a whole number from 1 to 10^15"),
        ("engine: default, model: x", "an engine's model stands after 'engine:'"),
        ("engine: default, url: 'http://x'", "url in penstock.yaml, line 4, is for servers"),
        (
            "engine: default, max_running: -1",
            "max_running in penstock.yaml, line 4, must be at least 1, got -1",
        ),
        ("engine: default, block_size: 5", "block_size in penstock.yaml, line 4, must be one of 1, 2"),
        ("engine: default, max_runing: 1", "the nearest known one is 'max_running'"),
        ("vllm: 'http://x', weight: 0", "must be a number above 0"),
        ("vllm: 'http://x', weight: .inf", "must be a number above 0"),
        ("vllm: 'http://x', headers: {Host: x}", "headers.Host in penstock.yaml, line 4, is set by Penstock"),
        ("vllm: 'http://x', headers: {Authorization: x}", "the key belongs into api_key"),
        ("vllm: 'http://x', headers: {'a b': x}", "is not a header that can be sent"),
        ("vllm: 'http://x', headers: {a: 1}", "must be 'name: text' pairs"),
        ('vllm: "http://x", api_key: "a\\nb"', "holds characters that no header may carry"),
        ('vllm: "http://x", name: "r\\u2028x"', "must be a name of printable characters"),
        ('vllm: "http://x", name: "q\\e]0;pwned\\a"', "must be a name of printable characters"),
    ],
)
def test_in_a_backend(text: str, said: str) -> None:
    (sentence,) = in_backend(text)
    assert said in sentence


def test_between_backends() -> None:
    (sentence,) = in_model("backends: [{vllm: 'http://x'}, {vllm: 'http://x/v1'}]")
    assert "backends[1] in penstock.yaml, line 2, is the same server as backends[0]" in sentence
    (sentence,) = in_model("backends: [{engine: a, name: n}, {engine: b, name: n}]")
    assert "backends[1].name in penstock.yaml, line 2, is the name of backends[0] already" in sentence


def test_the_same_server_with_another_key_is_another_share_of_it() -> None:
    assert in_model("backends: [{vllm: 'http://x', api_key: a}, {vllm: 'http://x', api_key: b}]") == []


def test_between_models() -> None:
    found = problems(
        f"models:\n  a: {{{ENGINE}, aliases: [b]}}\n  b: {{{ENGINE}}}\n  c: {{{ENGINE}, fallbacks: [d]}}\n"
        f"  d: {{{ENGINE}, fallbacks: [e]}}\n  e: {{{ENGINE}, fallbacks: [c]}}\n"
    )
    assert "models.b in penstock.yaml, line 3, takes the name 'b', which models.a.aliases has" in found[0]
    assert any("goes in a circle: " in sentence and sentence.count("->") == 3 for sentence in found[1:])


def test_a_long_chain_of_fallbacks_is_no_circle() -> None:
    models = "".join(
        f"  m{i}: {{backends: [{{engine: default}}], fallbacks: [m{i + 1}]}}\n" for i in range(1500)
    )
    assert problems(f"models:\n{models}  m1500: {{backends: [{{engine: default}}]}}\n") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class: fast", "class in penstock.yaml, line 3, must be one of interactive, standard, batch"),
        ("weight: -1", "must be a number above 0, got -1"),
        ("weight: .nan", "got .nan"),
        ("requests_per_minute: " + "9" * 400, "must be a whole number from 1 to 10^15"),
        ("monthly_budget: " + "9" * 400, "must be an amount in US dollars"),
        ("requests_per_minute: 0", "must be a whole number from 1 to 10^15"),
        ("tokens_per_minute: .nan", "got .nan"),
        ("monthly_budget: .nan", "must be an amount in US dollars"),
        ("monthly_budget: -1", "got -1"),
        ("models: [chta]", "names the model 'chta', which there is not; the nearest is 'chat'"),
        ("class: batch, service_class: batch", "is the same option as 'class'"),
    ],
)
def test_in_a_tenant(text: str, said: str) -> None:
    (sentence,) = problems(f"models: {{chat: {{{ENGINE}}}}}\ntenants:\n  acme: {{{text}}}\n")
    assert said in sentence


@pytest.mark.parametrize("name", ["'a b'", "''", '"a\\tb"', '"a\\u0000"', "x" * 200])
def test_names_have_no_blanks_and_an_end(name: str) -> None:
    (sentence,) = problems(f"tenants:\n  ? {name}\n  : {{}}\n")
    assert "must be a name of 1 to 128 characters without blanks" in sentence


def test_a_flat_model_has_no_place_beside_models() -> None:
    (sentence,) = problems(f"model: x\nmodels: {{chat: {{{ENGINE}}}}}\n")
    assert sentence.startswith("model in penstock.yaml, line 1, stands beside a section 'models'")


def test_a_variable_that_is_not_set_is_named() -> None:
    (sentence,) = in_backend("vllm: 'http://x', api_key: '${NO_KEY}'")
    assert (
        "api_key in penstock.yaml, line 4, needs the environment variable NO_KEY, which is not set"
        in sentence
    )
    (sentence,) = in_backend("vllm: '${NO_URL}'", NO_URL="")
    assert "needs the environment variable NO_URL, which is empty" in sentence
    (sentence,) = in_backend("vllm: 'http://x', headers: {X-A: '${NO_HEADER}'}")
    assert "headers.X-A in penstock.yaml, line 4, needs the environment variable NO_HEADER" in sentence


@pytest.mark.parametrize(
    "text",
    [
        "vllm: 'http://user:topsecret@x'",
        "vllm: 'topsecret@x'",
        "vllm: 'http://x', api_key: [topsecret]",
        "vllm: 'http://x', api_key: {topsecret: 1}",
        "vllm: 'http://x', headers: {Authorization: topsecret}",
        "vllm: 'http://x', headers: [topsecret]",
        "vllm: '${SECRET}'",
        "vllm: 'http://x', weight: '${SECRET}'",
        "vllm: 'http://x', api_kye: topsecret",
    ],
)
def test_no_message_holds_a_secret(text: str) -> None:
    (sentence,) = in_backend(text, SECRET="topsecret")
    assert "topsecret" not in sentence


def test_mistakes_in_the_environment_are_found_beside_those_in_the_file() -> None:
    found = problems("port: http\n", PENSTOCK_MAX_RUNING="1", PENSTOCK_THREADS="none")
    assert len(found) == 3
    assert any("PENSTOCK_MAX_RUNING" in sentence for sentence in found)
    assert any(sentence.startswith("PENSTOCK_THREADS must be") for sentence in found)


def test_a_small_file_that_means_an_enormous_one_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ConfigError, match="more than 100,000 values once its aliases are written out"):
        problems("\n".join(lines))


def test_merged_sections_cannot_grow_without_end_either() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 9)]
    with pytest.raises(ConfigError, match="more than 100,000 values"):
        problems("\n".join(lines))


@pytest.mark.parametrize(
    "text", ["a: &a [*a]\n", "a: " + "[" * 100 + "]" * 100, "a: " + "[" * 5000 + "]" * 5000]
)
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nested more than 32 levels deep, or holds itself"):
        problems(text)


def test_a_file_that_is_too_large_is_refused() -> None:
    Path("penstock.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load_settings(environ={})


@pytest.mark.parametrize("text", ["a: !!set {x}\n", "? [a]\n: 1\n", "<<: 3\n", "a: [b\n", "a: \x00\n"])
def test_what_is_not_plain_yaml_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^penstock\.yaml is not valid YAML.*\.$"):
        problems(text)


@pytest.mark.parametrize("text", ["port: " + "9" * 5000, "port: 2024-02-31\n"])
def test_a_value_that_yaml_itself_cannot_read_is_a_mistake_like_any_other(text: str) -> None:
    (sentence,) = problems(text)
    assert sentence == "port in penstock.yaml, line 1, is not a value that can be read."
