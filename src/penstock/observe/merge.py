"""Several processes' pages of metrics as one: what each has counted is added up."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.observe.catalogue import specs

# What every process says of the same thing: added up it would mean nothing.
_SAME = frozenset(
    name
    for spec in specs().values()
    if spec.merge == "max"
    for each in (spec.name, spec.also)
    if each
    for name in spec.series(each)
)


def merged(pages: Iterable[bytes]) -> bytes:
    """In Prometheus's text format, as `Metrics.render` writes it: the samples below their HELP and TYPE."""
    families: dict[str, dict[str, float]] = {}  # the comment lines of a family: its samples
    for page in pages:
        comments = ""
        samples: dict[str, float] = {}
        same = False
        for line in page.decode().splitlines():
            if line.startswith("# HELP"):
                comments, samples = line, {}
            elif line.startswith("# TYPE"):
                samples = families.setdefault(f"{comments}\n{line}", {})
                same = line.split(" ")[2] in _SAME
            elif line:
                name, _, value = line.rpartition(" ")
                if same:
                    samples[name] = max(samples.get(name, float(value)), float(value))
                else:
                    samples[name] = samples.get(name, 0.0) + float(value)
    lines: list[str] = []
    for comments, samples in families.items():
        lines.append(comments)
        lines += [f"{name} {value!r}" for name, value in samples.items()]
    return ("\n".join(lines) + "\n").encode()
