"""A line of the log: its form, its request, and what it never shows."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.logs import JsonLines, TextLines, request_id, without_keys

PROMPT = "XYZZY-the-prompt"


@pytest.fixture
def in_request() -> Iterator[str]:
    token = request_id.set("abc-1")
    yield "abc-1"
    request_id.reset(token)


def record(message: str, *args: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("penstock.gateway", logging.WARNING, __file__, 1, message, args, None)
    vars(made).update(more)
    return made


def test_text_names_the_process_and_the_request(in_request: str) -> None:
    line = TextLines("3").format(record("Failed at %s.", "here"))
    assert line.endswith(f" WARNING penstock.gateway[3] [{in_request}]: Failed at here.")


def test_text_without_a_request_or_a_process_has_neither() -> None:
    assert TextLines().format(record("Read.")).endswith(" WARNING penstock.gateway: Read.")


def test_what_a_message_quotes_begins_no_line_of_its_own() -> None:
    line = TextLines().format(record("It said: %s", "no\r\n2026-01-01 ERROR forged"))
    assert "\n" not in line
    assert "\r" not in line
    assert r"no\r\n2026" in line


def test_json_is_one_object_on_one_line(in_request: str) -> None:
    line = JsonLines("0").format(
        record(
            'Odd "quotes"\n\u2028 and \udc00', fields={"ttft": 0.25, "level": "mine", "causes": ["queued"]}
        )
    )
    assert len(line.splitlines()) == 1
    line.encode()  # a stream can write it, whatever was in the message
    read = json.loads(line)
    assert read["message"].startswith('Odd "quotes"\n')
    assert {"level": "warning", "logger": "penstock.gateway", "process": "0"}.items() <= read.items()
    assert read["request_id"] == in_request
    assert read["ttft"] == 0.25
    assert read["causes"] == ["queued"]
    assert read["time"].endswith("Z")


def test_json_holds_the_traceback_without_keys() -> None:
    try:
        raise ValueError("refused: Authorization: Bearer abcdef123456")
    except ValueError:
        made = logging.LogRecord("penstock", logging.ERROR, __file__, 1, "Failed.", (), sys.exc_info())
    for form in (TextLines(), JsonLines()):
        line = form.format(made)
        assert "Traceback" in line
        assert "abcdef123456" not in line


def failed(name: str = "penstock.gateway") -> logging.LogRecord:
    def read(prompt: str) -> None:
        try:
            int(prompt)
        except ValueError as error:
            raise KeyError(prompt) from error

    try:
        read(PROMPT)
    except KeyError:
        return logging.LogRecord(name, logging.ERROR, __file__, 1, "Failed.", (), sys.exc_info())
    raise AssertionError


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
def test_an_error_in_a_request_is_told_by_kind_and_place_without_its_words(
    in_request: str, form: logging.Formatter
) -> None:
    line = form.format(failed())
    assert "XYZZY" not in line
    assert "in read" in line
    assert line.index("ValueError") < line.index("from which came") < line.index("KeyError")


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
def test_errors_of_no_request_keep_their_words_unless_nobody_knows_where_they_are_from(
    form: logging.Formatter,
) -> None:
    assert "XYZZY" in form.format(failed("penstock.workers"))
    for name in ("asyncio", "uvicorn.error"):
        assert "XYZZY" not in form.format(failed(name))


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
async def test_a_dropped_task_is_told_without_its_errors_words(
    form: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError(PROMPT)

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    [dropped] = [each for each in caplog.records if each.name == "asyncio"]
    assert "XYZZY" in dropped.getMessage()
    line = form.format(dropped)
    assert "Task exception was never retrieved" in line
    assert "in fail" in line
    assert "XYZZY" not in line


def test_what_a_terminal_would_obey_is_written_out() -> None:
    made = record("The replica %s is gone.\n", "q\x1b]0;pwned\x07\x9b31m\u2028x\tend")
    assert TextLines().format(made).endswith("q\\x1b]0;pwned\\x07\\x9b31m\\u2028x\tend is gone.")


@pytest.mark.parametrize(
    "text",
    [
        "sk-penstock-0123456789ab-tell",
        "key sk-proj-SECRETtell is wrong",
        "Authorization: Bearer tell.SECRET-tell",
        "authorization: Basic dGVsbA==tell",
        "{'x-api-key': 'SECRETtell'}",
        "api_key=SECRETtell",
        "redis://user:SECRETtell@host:6379/0",
    ],
)
def test_what_looks_like_a_key_is_not_shown(text: str) -> None:
    assert "tell" not in without_keys(text)
    assert "***" in without_keys(text)


@pytest.mark.parametrize(
    "text", ["The replica a gets requests.", "10 tokens at http://host:8000/v1", "basic facts", "task-1"]
)
def test_plain_words_stay(text: str) -> None:
    assert without_keys(text) == text


async def test_tasks_and_threads_of_a_request_log_under_its_id() -> None:
    async def line() -> str:
        return TextLines().format(record("x"))

    async def request(name: str) -> list[str]:
        request_id.set(name)
        await asyncio.sleep(0)
        task = asyncio.create_task(line())
        return [await line(), await task, await asyncio.to_thread(TextLines().format, record("x"))]

    for name, lines in zip("ab", await asyncio.gather(request("a"), request("b")), strict=True):
        assert all(f"[{name}]" in each for each in lines)
    assert "[" not in await line()


def test_an_engine_logs_as_its_server_does() -> None:
    program = (
        "import logging, warnings; from penstock import logs; logs.configure_engine()\n"
        "logging.getLogger('penstock.engine').info('A step.'); warnings.warn('old', stacklevel=1)"
    )

    def said(**env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr

    lines = said(PENSTOCK_LOG_FORMAT="json", PENSTOCK_LOG_LEVEL="info").splitlines()
    assert [json.loads(line)["logger"] for line in lines] == ["penstock.engine", "py.warnings"]
    assert "A step." not in said(PENSTOCK_LOG_FORMAT="json", PENSTOCK_LOG_LEVEL="warning")
    # A level that nobody knows is refused by the server; an engine by itself goes on.
    assert "INFO penstock.engine[" in said(PENSTOCK_LOG_LEVEL="loud", PENSTOCK_LOG_FORMAT="")
