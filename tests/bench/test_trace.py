"""A trace file becomes the requests it describes, or says which line is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.bench.trace import read_trace
from penstock.bench.workloads import traced
from penstock.errors import ConfigError

LINES = """\
{"at": 2.0, "prompt": "Hello", "output_len": 3}

{"at": 0, "prompt": [5, 6], "output_len": 4}
{"at": 1, "input_len": 4, "output_len": 5, "prefix_len": 8, "prefix_id": "a"}
{"at": 1.5, "input_len": 4, "output_len": 5, "prefix_len": 6, "prefix_id": "a"}
{"at": 1.6, "input_len": 4, "output_len": 5, "prefix_len": 6, "prefix_id": "b"}
"""


def write(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_requests_come_in_the_order_of_their_moments(tmp_path: Path) -> None:
    work = traced(write(tmp_path, LINES), speed=2.0)
    jobs = work.jobs()
    assert (work.name, work.requests, work.arrivals) == ("mine", 5, "trace")
    assert [job.at for job in jobs] == pytest.approx([0.0, 0.5, 0.75, 0.8, 1.0])
    assert [job.output_len for job in jobs] == [4, 5, 5, 5, 3]
    assert work.offered_rate == pytest.approx(4.0)
    assert (jobs[0].prompt, jobs[4].text) == ([5, 6], "Hello")


def test_prefixes_of_the_same_id_are_shared_and_the_rest_is_not(tmp_path: Path) -> None:
    work = traced(write(tmp_path, LINES))
    _, first, second, other, _ = work.jobs(vocab_size=5000)
    assert [len(job.prompt) for job in (first, second, other)] == [12, 10, 10]
    assert first.prompt[:6] == second.prompt[:6] != other.prompt[:6]
    assert first.prompt[8:] != second.prompt[6:]
    assert max(first.prompt) < 5000
    assert work.jobs(repeat=1)[1].prompt != work.jobs()[1].prompt


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: Input data was truncated"),
        ("[]", "line 2: Expected `object`"),
        (b'{"at": 1, "prompt": "\xff", "output_len": 3}', "line 2: "),
        ('{"at": 1, "output_len": 3}', 'line 2: give either "prompt" or "input_len"'),
        ('{"at": 1, "output_len": 3, "prompt": "x", "input_len": 3}', "line 2: give either"),
        ('{"at": 1, "output_len": 3, "prompt": ""}', "is empty"),
        ('{"at": 1, "output_len": 3, "prompt": "x", "prefix_len": 3}', '"prefix_len" goes with "input_len"'),
        ('{"at": -1, "output_len": 3, "input_len": 3}', "line 2: .*at"),
        ('{"at": 1, "output_len": 0, "input_len": 3}', "line 2: .*output_len"),
        ('{"at": 1, "output_len": 3, "input_length": 3}', "line 2: .*input_length"),
        ('{"output_len": 3, "input_len": 3}', "line 2: .*`at`"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str | bytes, complaint: str) -> None:
    good = b'{"at": 0, "input_len": 3, "output_len": 3}\n'
    path = write(tmp_path, good + (line.encode() if isinstance(line, str) else line))
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_a_file_without_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no requests"):
        read_trace(write(tmp_path, "\n"))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_trace(str(tmp_path / "none.jsonl"))
    with pytest.raises(ConfigError, match="--speed must be above 0"):
        read_trace(write(tmp_path, LINES), speed=0.0)
