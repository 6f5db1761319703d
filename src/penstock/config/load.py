"""Gather settings from their four sources and say, in one sentence, what is wrong and where."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.config.backends import named, read_backend
from penstock.config.catalogue import Option, options_of
from penstock.config.checks import check_engines, check_sections
from penstock.config.problems import Mistakes, Problem, Problems, nearest
from penstock.config.read import Reader
from penstock.config.routing import CacheConfig, read_cache
from penstock.config.sections import BackendConfig, GatewayConfig
from penstock.config.settings import Settings, options
from penstock.config.tiers import check_tiers, with_tier_models
from penstock.config.tree import Document
from penstock.errors import ConfigError

FILE_NAME = "penstock.yaml"
PREFIX = "PENSTOCK_"
# Read elsewhere: where models are kept, which file to read, where tests and benchmarks find measured data,
# which native kernels to use.
OTHER_VARIABLES = frozenset({"PENSTOCK_HOME", "PENSTOCK_CONFIG", "PENSTOCK_DATA", "PENSTOCK_NATIVE"})
# Kubernetes sets these in every pod beside a Service whose name begins with "penstock".
_SERVICE_LINK = re.compile(
    r"PENSTOCK_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
_SERVICE_PORT = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A configuration and all that is wrong with it: `settings` is None where anything is."""

    file: Path | None
    settings: Settings | None
    problems: tuple[Problem, ...]


def load_settings(
    flags: Mapping[str, tuple[str, object]] | None = None,
    *,
    config: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Flags over environment over file over defaults. Raises ConfigError.

    `flags` gives for each setting the flag that was used and its value; None means "not given".
    """
    examined = examine(flags, config=config, environ=environ)
    if examined.settings is None:
        raise Mistakes(examined.problems)
    return examined.settings


def examine(
    flags: Mapping[str, tuple[str, object]] | None = None,
    *,
    config: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Examined:
    """What `load_settings` reads, with every mistake. Raises ConfigError if there is no reading the file."""
    environ = os.environ if environ is None else environ
    path = find_file(config, environ)
    document = Document() if path is None else _read(path, environ)
    problems = Problems(str(path) if path else None, document.lines)
    for place, predicate in document.complaints:
        problems.add(place, predicate)
    values, gateway = _from_file(document, problems)
    origins = {name: f"{name} in {path}" for name in values}

    def take(option: Option, value: object, origin: str) -> None:
        if option.name == "model":  # whoever names a model on the spot means that one
            values["gateway"] = dataclasses.replace(gateway, models=())
        try:
            values[option.name] = _parsed(option, value, origin)
            origins[option.name] = origin
        except ConfigError as error:
            problems.say(str(error))

    catalogue = options()
    for option, text, variable in _variables(environ, catalogue, problems):
        take(option, text, variable)
    for name, (flag, value) in (flags or {}).items():
        if value is not None:
            take(catalogue[name], value, flag)
    settings = _settings({"gateway": gateway, **values}, origins, problems)
    check_engines(settings or Settings(gateway=gateway), problems)
    found = tuple(sorted(problems.found, key=lambda problem: problem.line or 0))
    return Examined(file=path, settings=None if found else settings, problems=found)


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


def _read(path: Path, environ: Mapping[str, str]) -> Document:
    from penstock.config.document import read_document  # YAML: not needed without a file

    return read_document(path, environ)


def _from_file(document: Document, problems: Problems) -> tuple[dict[str, Any], GatewayConfig]:
    """The flat options and the sections of a file."""
    reader = Reader(problems, {BackendConfig: read_backend, CacheConfig: read_cache})
    sections, flat = options_of(GatewayConfig), options()
    values = reader.options({**flat, **sections}, reader.entries(document.root, ""), "")
    parts = {name: values.pop(name) for name in sections if name in values}
    gateway = GatewayConfig(**parts)
    models = tuple(dataclasses.replace(model, backends=named(model.backends)) for model in gateway.models)
    gateway = with_tier_models(dataclasses.replace(gateway, models=models))
    check_sections(gateway, problems)
    check_tiers(gateway, problems)
    for name in ("model", "served_model_names"):
        if name in values and models:
            problems.add(name, "stands beside a section 'models', which says what is served; move it there")
    return values, gateway


def _variables(
    environ: Mapping[str, str], catalogue: Mapping[str, Option], problems: Problems
) -> Iterator[tuple[Option, str, str]]:
    """Our variables that are set: option, value and the name that was used."""
    spellings = {name: each for each in catalogue.values() for name in (each.name, *each.aliases)}
    used: dict[str, str] = {}
    for variable, value in environ.items():
        if not _ours(variable, value):
            continue
        key = variable[len(PREFIX) :].lower()
        found = spellings.get(key)
        if found is None:
            guess = PREFIX + nearest(key, spellings).upper()
            problems.say(
                f"The environment sets an unknown variable {variable!r}; the nearest known one is {guess!r}."
            )
        elif found.name in used:
            problems.say(f"{used[found.name]} and {variable} are the same option; keep one of them.")
        else:
            used[found.name] = variable
            yield found, value, variable


def _settings(values: Mapping[str, Any], origins: Mapping[str, str], problems: Problems) -> Settings | None:
    try:
        return Settings(**values)
    except ConfigError as error:
        name, _, predicate = str(error).rstrip(".").partition(" ")
        if problems.line_of(name) and origins.get(name, "").startswith(f"{name} in "):
            problems.add(name, predicate)
        else:
            problems.say(_with_origin(str(error), origins))
        return None


def _ours(name: str, value: str) -> bool:
    """Whether a variable is a setting (an unknown one included), and not somebody else's or empty."""
    if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not value:
        return False
    if _SERVICE_LINK.fullmatch(name):
        return False
    return not (name.endswith("_PORT") and _SERVICE_PORT.match(value))


def _parsed(option: Option, value: object, origin: str) -> Any:
    if option.optional and (value is None or value == "auto"):
        return None
    try:
        return option.kind.parse(value)
    except (ValueError, OverflowError):
        # A key mistyped as a number is still somebody's key.
        got = "and is not" if option.secret else f"got {value!r}"
        raise ConfigError(f"{origin} must be {option.kind.expects}, {got}.") from None


def _with_origin(message: str, origins: Mapping[str, str]) -> str:
    """Say where a value that is out of range came from; the message begins with the option's name."""
    name = message.split(" ", 1)[0]
    return f"{message.rstrip('.')} (set by {origins[name]})." if name in origins else message
