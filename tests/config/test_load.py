"""Where a setting comes from, which source wins, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Settings, load_settings, options
from penstock.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "penstock.yaml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def mistake(**given: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(**{"environ": {}, **given})  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_without_any_source_the_defaults_hold() -> None:
    assert load_settings(environ={}) == Settings()


def test_flags_win_over_environment_over_file_over_defaults() -> None:
    write("port: 1\nhost: file\nmodel: file\n")
    environ = {"PENSTOCK_PORT": "2", "PENSTOCK_HOST": "environment"}
    settings = load_settings({"port": ("--port", "3"), "host": ("--host", None)}, environ=environ)
    assert (settings.port, settings.host, settings.model) == (3, "environment", "file")


def test_every_option_can_be_set_in_the_file_and_in_the_environment() -> None:
    for option in options().values():
        other = {
            "log_level": "debug",
            "log_format": "json",
            "device": "cuda",
            "block_size": "32",
            "memory_fraction": "0.5",
            "arrival_window": "20ms",
            "prefix_caching": "false",
            "allow_public": "true",
            "pooling": "mean",
            "precision": "bfloat16",
            "reasoning_parser": "none",
            "kv_precision": "fp8",
            "load_format": "random",
            "without": "graphs,overlap",
        }.get(option.name, "7")
        from_environment = load_settings(environ={option.variable: other})
        path = write(f"{option.name}: '{other}'\n", "one.yaml")
        from_file = load_settings(config=path, environ={})
        assert from_environment == from_file
        assert getattr(from_file, option.name) != option.default


def test_the_file_may_be_named_by_flag_or_environment() -> None:
    path = write("port: 1\n", "mine.yaml")
    assert load_settings(config=path, environ={}).port == 1
    assert load_settings(environ={"PENSTOCK_CONFIG": "mine.yaml"}).port == 1


def test_a_named_file_that_is_missing_is_an_error() -> None:
    assert "--config names none.yaml, which is not a file" in mistake(config="none.yaml")
    assert "PENSTOCK_CONFIG names none.yaml" in mistake(environ={"PENSTOCK_CONFIG": "none.yaml"})


def test_an_empty_file_sets_nothing() -> None:
    write("# nothing yet\n")
    assert load_settings(environ={}) == Settings()


def test_vllm_names_and_dashes_mean_the_same_options() -> None:
    write("max-num-seqs: 8\ngpu_memory_utilization: 0.5\nserved_model_name: [a, b]\nmax_model_len: 4K\n")
    settings = load_settings(environ={"PENSTOCK_MAX_NUM_BATCHED_TOKENS": "2k"})
    assert settings.max_running == 8
    assert settings.memory_fraction == 0.5
    assert settings.served_model_names == ("a", "b")
    assert settings.max_model_len == 4096
    assert settings.max_step_tokens == 2000


def test_auto_and_null_leave_the_decision_to_the_engine() -> None:
    write("threads: null\nmax_model_len: auto\n")
    settings = load_settings(environ={"PENSTOCK_MAX_RUNNING": "auto"})
    assert (settings.threads, settings.max_model_len, settings.max_running) == (None, None, None)


def test_an_unknown_key_is_named_with_the_nearest_known_one() -> None:
    write("max_modle_len: 4096\n")
    assert mistake() == (
        "max_modle_len in penstock.yaml, line 1, is not a known key; "
        "the nearest known one is 'max_model_len'."
    )


def test_an_unknown_variable_is_named_with_the_nearest_known_one() -> None:
    message = mistake(environ={"PENSTOCK_MAX_RUNING": "4"})
    assert "'PENSTOCK_MAX_RUNING'; the nearest known one is 'PENSTOCK_MAX_RUNNING'" in message


def test_a_wrong_type_names_key_value_and_source() -> None:
    write("port: http\n")
    assert mistake().startswith("port in penstock.yaml, line 1, must be a whole number")
    assert "got 'http'" in mistake()
    write("")
    assert mistake(environ={"PENSTOCK_PORT": "http"}).startswith("PENSTOCK_PORT must be a whole number")
    assert mistake(flags={"max_running": ("--max-num-seqs", "many")}).startswith(
        "--max-num-seqs must be a whole"
    )


def test_a_value_out_of_range_names_its_source() -> None:
    message = mistake(environ={"PENSTOCK_MAX_RUNNING": "0"})
    assert message == "max_running must be at least 1, got 0 (set by PENSTOCK_MAX_RUNNING)."
    assert (
        mistake(flags={"port": ("--port", "70000")})
        == "port must be between 0 and 65535, got 70000 (set by --port)."
    )
    assert "log_level must be one of debug, info" in mistake(flags={"log_level": ("--log-level", "loud")})
    assert "drain_seconds must not be negative" in mistake(flags={"drain_seconds": ("--drain-seconds", "-1")})


@pytest.mark.parametrize("value", ["9" * 400, "nan", "1e999", "-inf"])
def test_absurd_numbers_are_refused_like_any_other_mistake(value: str) -> None:
    write(f"memory_fraction: {value}\n")
    assert "memory_fraction" in mistake()


def test_the_same_option_under_two_names_is_an_error() -> None:
    write("max_running: 1\nmax_num_seqs: 2\n")
    assert mistake() == (
        "max_num_seqs in penstock.yaml, line 2, is the same option as 'max_running'; keep one of them."
    )
    message = mistake(
        config=write("", "empty.yaml"),
        environ={"PENSTOCK_MAX_RUNNING": "1", "PENSTOCK_MAX_NUM_SEQS": "2"},
    )
    assert message == "PENSTOCK_MAX_RUNNING and PENSTOCK_MAX_NUM_SEQS are the same option; keep one of them."


def test_a_key_given_twice_is_an_error() -> None:
    write("port: 1\nport: 2\n")
    assert mistake() == "port in penstock.yaml, line 2, is given twice; keep one of them."


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("port: [1\n", "is not valid YAML at line"),
        ("- port\n", "must hold 'key: value' lines, got a list"),
        ("!!python/object/apply:os.getcwd []\n", "is not valid YAML"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_an_error(text: str, complaint: str) -> None:
    write(text)
    assert complaint in mistake()


def test_a_file_that_is_not_text_is_an_error() -> None:
    Path("penstock.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read: it is not UTF-8 text" in mistake()


def test_a_key_never_appears_in_a_message_or_a_representation() -> None:
    write("api_keys: 12345678\n")
    assert "12345678" not in mistake()
    assert "secret" not in repr(
        load_settings({"api_keys": ("--api-key", ["secret"])}, config=write("", "empty.yaml"), environ={})
    )


def test_variables_that_kubernetes_injects_are_not_settings() -> None:
    environ = {
        "PENSTOCK_PORT": "tcp://10.0.0.1:8000",
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT": "8000",
        "PENSTOCK_SERVICE_PORT_HTTP": "8000",
        "PENSTOCK_PORT_8000_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_ENGINE_PORT": "tcp://10.0.0.2:8000",
        "PENSTOCK_ENGINE_SERVICE_HOST": "10.0.0.2",
    }
    assert load_settings(environ=environ) == Settings()


def test_other_programs_variables_and_empty_ones_are_left_alone() -> None:
    assert load_settings(environ={"PENSTOCK_HOME": "/x", "PENSTOCK_PORT": "", "PORT": "1"}) == Settings()
