"""penstock.yaml as a tree that remembers its lines, with ${VARIABLES} filled in. Bounded in all ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.config.tree import UNSET, Document, Node
from penstock.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000  # aliases counted as often as they are used: a small file can mean an enormous one
MAX_DEPTH = 32
_VARIABLE = re.compile(r"\$(?:(\$)\{|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})")
_MERGE = "tag:yaml.org,2002:merge"
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


def read_document(path: Path, environ: Mapping[str, str]) -> Document:
    """Raises ConfigError if the file is not YAML at all; what is wrong inside is in `complaints`."""
    return parse_document(read_text(path), str(path), environ)


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES >> 20} MiB; is it a configuration file?")
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}.") from None


def parse_document(text: str, name: str, environ: Mapping[str, str] | None) -> Document:
    """With `environ` None, what looks like a variable is left as it is."""
    try:
        loader = yaml.SafeLoader(text)
        walk = _Walk(name, loader.construct_object, environ)
        node = loader.get_single_node()
        root = Node(None) if node is None else walk.node(node, "", 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        raise ConfigError(f"{name} is not valid YAML{place}: {problem}.") from None
    except RecursionError:
        raise _too_deep(name) from None
    if not isinstance(root.value, dict | None):
        raise ConfigError(f"{name} must hold 'key: value' lines, got {root.shown}.")
    return Document(root, walk.lines, tuple(walk.complaints))


class _Walk:
    def __init__(
        self, name: str, construct: Callable[[yaml.Node], Any], environ: Mapping[str, str] | None
    ) -> None:
        self.lines: dict[str, int] = {}
        self.complaints: list[tuple[str, str]] = []
        self._name = name
        self._construct = construct
        self._environ = environ
        self._values = 0

    def node(self, node: yaml.Node, place: str, depth: int) -> Node:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ConfigError(
                f"{self._name} has more than {MAX_VALUES:,} values once its aliases are written out."
            )
        if depth > MAX_DEPTH:
            raise _too_deep(self._name)
        if place:
            self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
            raise _broken(node, f"the tag {node.tag!r} is not known here")
        if isinstance(node, yaml.MappingNode):
            return Node(self._mapping(node, place, depth))
        if isinstance(node, yaml.SequenceNode):
            return Node([self.node(item, f"{place}[{i}]", depth + 1) for i, item in enumerate(node.value)])
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: str, depth: int) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in sources:
                    inherited = self.node(source, place, depth + 1).value
                    if not isinstance(inherited, dict):
                        raise _broken(key, "'<<' must name sections")
                    merged = {**inherited, **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _broken(key, "a key must be a text")
            # As written: YAML would read the names `on` and `1.10` as true and 1.1.
            name = str(key.value)
            where = f"{place}.{name}" if place else name
            if name in own:
                self.lines[where] = key.start_mark.line + 1
                self.complaints.append((where, "is given twice; keep one of them"))
                continue
            self.lines[where] = key.start_mark.line + 1
            own[name] = self.node(value, where, depth + 1)
        return {**merged, **own}

    def _scalar(self, node: yaml.Node, place: str) -> Node:
        written = str(node.value)
        try:
            value = self._construct(node)
        except ValueError:  # a number of thousands of digits, a date of the 31st of February
            self.complaints.append((place, "is not a value that can be read"))
            return Node(UNSET, written)
        if isinstance(value, str) and "${" in value and self._environ is not None:
            return Node(self._filled(value, place, self._environ), written)
        return Node(value, written)

    def _filled(self, text: str, place: str, environ: Mapping[str, str]) -> Any:
        missing: list[str] = []

        def fill(match: re.Match[str]) -> str:
            escaped, name, default = match.groups()
            if escaped:
                return "${"
            value = environ.get(name) or default
            if value is None:
                missing.append(name)
            return value or ""

        filled = _VARIABLE.sub(fill, text)
        for name in missing:
            state = "is empty" if name in environ else "is not set"
            hint = f"set it, or write ${{{name}:-...}}"
            self.complaints.append((place, f"needs the environment variable {name}, which {state}; {hint}"))
        # `${KEY:-}` says that nothing is an answer too.
        return UNSET if missing else (filled or None)


def _broken(node: yaml.Node, problem: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _too_deep(name: str) -> ConfigError:
    return ConfigError(f"{name} is nested more than {MAX_DEPTH} levels deep, or holds itself.")
