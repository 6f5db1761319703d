"""Gather settings from their four sources and say, in one sentence, what is wrong and where."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.config.catalogue import Option
from penstock.config.settings import Settings, options
from penstock.errors import ConfigError

FILE_NAME = "penstock.yaml"
PREFIX = "PENSTOCK_"
# Read elsewhere: where models are kept, which file to read, how strict the tests are.
OTHER_VARIABLES = frozenset({"PENSTOCK_HOME", "PENSTOCK_CONFIG"})
# Kubernetes sets these in every pod beside a Service whose name begins with "penstock".
_SERVICE_LINK = re.compile(
    r"PENSTOCK_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
_SERVICE_PORT = re.compile(r"(tcp|udp|sctp)://")


def load_settings(
    flags: Mapping[str, tuple[str, object]] | None = None,
    *,
    config: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Flags over environment over file over defaults.

    `flags` gives for each setting the flag that was used and its value; None means "not given".
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}

    def take(option: Option, value: object, origin: str) -> None:
        values[option.name] = _parsed(option, value, origin)
        origins[option.name] = origin

    catalogue = options()
    path = find_file(config, environ)
    if path is not None:
        for option, value, key in _resolved(_read(path).items(), catalogue, f"{path}: unknown key"):
            take(option, value, f"{key} in {path}")
    variables = [(name[len(PREFIX) :].lower(), text) for name, text in environ.items() if _ours(name, text)]
    for option, value, key in _resolved(
        variables, catalogue, "The environment sets an unknown variable", PREFIX
    ):
        take(option, value, PREFIX + key.upper())
    for name, (flag, value) in (flags or {}).items():
        if value is not None:
            take(catalogue[name], value, flag)
    try:
        return Settings(**values)
    except ConfigError as error:
        raise ConfigError(_with_origin(str(error), origins)) from None


def find_file(config: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The configuration file: the one that was named, or penstock.yaml in the working directory."""
    named = config or environ.get("PENSTOCK_CONFIG")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            source = "--config" if config else "PENSTOCK_CONFIG"
            raise ConfigError(
                f"{source} names {path}, which is not a file; correct the path or leave it out."
            )
        return path
    path = Path(FILE_NAME)
    return path if path.is_file() else None


def sort_variables(environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The names of our variables that are set: those that are read, and those nobody knows."""
    ours = sorted(name for name, value in environ.items() if _ours(name, value))
    spelled = {PREFIX + name.upper() for o in options().values() for name in (o.name, *o.aliases)}
    known = sorted(name for name in OTHER_VARIABLES if environ.get(name))
    known += [name for name in ours if name in spelled]
    return known, [name for name in ours if name not in spelled]


def _read(path: Path) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key given twice, of which YAML would silently keep the last."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise ConfigError(f"{path} gives {key!r} twice; keep one of them.")
            return super().construct_mapping(node, deep)

    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.load(text, Loader=Loader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise ConfigError(f"{path} is not valid YAML{place}: {problem}.") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, got a {type(content).__name__}.")
    return content


def _ours(name: str, value: str) -> bool:
    """Whether a variable is a setting (an unknown one included), and not somebody else's or empty."""
    if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not value:
        return False
    if _SERVICE_LINK.fullmatch(name):
        return False
    return not (name.endswith("_PORT") and _SERVICE_PORT.match(value))


def _resolved(
    given: Iterable[tuple[Any, Any]], catalogue: Mapping[str, Option], unknown: str, prefix: str = ""
) -> list[tuple[Option, Any, str]]:
    """Find each key's option, whichever of its names was used."""
    by_name = {name: option for option in catalogue.values() for name in (option.name, *option.aliases)}
    found: dict[str, tuple[Option, Any, str]] = {}
    for raw, value in given:
        key = str(raw).replace("-", "_")
        option = by_name.get(key)
        if option is None:
            shown = prefix + key.upper() if prefix else str(raw)
            nearest = difflib.get_close_matches(key, by_name, n=1, cutoff=0.0)[0]
            nearest = prefix + nearest.upper() if prefix else nearest
            raise ConfigError(f"{unknown} {shown!r}; the nearest known one is {nearest!r}.")
        if option.name in found:
            first = found[option.name][2]
            raise ConfigError(f"{first!r} and {key!r} are the same option; keep one of them.")
        found[option.name] = (option, value, key)
    return list(found.values())


def _parsed(option: Option, value: object, origin: str) -> Any:
    if option.optional and (value is None or value == "auto"):
        return None
    try:
        return option.kind.parse(value)
    except (ValueError, OverflowError):
        # A key mistyped as a number is still somebody's key.
        got = f"a {type(value).__name__}" if option.secret else repr(value)
        raise ConfigError(f"{origin} must be {option.kind.expects}, got {got}.") from None


def _with_origin(message: str, origins: Mapping[str, str]) -> str:
    """Say where a value that is out of range came from; the message begins with the option's name."""
    name = message.split(" ", 1)[0]
    return f"{message.rstrip('.')} (set by {origins[name]})." if name in origins else message
