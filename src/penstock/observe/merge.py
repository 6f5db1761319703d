"""Several processes' pages of metrics as one: what each has counted is added up."""

from __future__ import annotations

from collections.abc import Iterable

# What every process says of the same thing: added up it would mean nothing.
_SAME = ("penstock_replica_healthy",)
# When a process's counter began; a total has no such time.
_LEFT_OUT = "_created"


def merged(pages: Iterable[bytes]) -> bytes:
    """In Prometheus's text format, as prometheus-client writes it: the samples below their HELP and TYPE."""
    families: dict[str, dict[str, float]] = {}  # the comment lines of a family: its samples
    for page in pages:
        comments = ""
        samples: dict[str, float] = {}
        for line in page.decode().splitlines():
            if line.startswith("# HELP"):
                comments, samples = line, {}
            elif line.startswith("# TYPE"):
                samples = families.setdefault(f"{comments}\n{line}", {})
            elif line:
                name, _, value = line.rpartition(" ")
                if name in samples and name.startswith(_SAME):
                    samples[name] = max(samples[name], float(value))
                else:
                    samples[name] = samples.get(name, 0.0) + float(value)
    lines: list[str] = []
    for comments, samples in families.items():
        if comments.split(" ")[2].endswith(_LEFT_OUT):
            continue
        lines.append(comments)
        lines += [f"{name} {value!r}" for name, value in samples.items()]
    return ("\n".join(lines) + "\n").encode()
