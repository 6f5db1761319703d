"""How a backend is written: `vllm: URL` for kind and url, an engine's options beside it; and its checks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from penstock.config.catalogue import Option, options_of
from penstock.config.problems import Problems
from penstock.config.read import FAILED, Reader
from penstock.config.sections import BACKEND_KINDS, BackendConfig, DiscoverConfig
from penstock.config.settings import Settings
from penstock.config.tree import Node

# Providers: one address that everybody uses, and a key without which nothing is answered.
HOSTED = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
_SERVERS = tuple(kind for kind in BACKEND_KINDS if kind != "engine")
_FOR_SERVERS = ("url", "discover", "model", "api_key", "headers", "vision", "priority", "timeouts", "options")
_FOR_ENGINES = ("engine", "replicas")
# Beside the engine's own options, those that concern its model.
_OF_ITS_MODEL = ("chat_template", "reasoning_parser")
# What is sent anyway, or would change who is spoken to.
_OUR_HEADERS = frozenset(
    {"authorization", "connection", "content-length", "content-type", "host", "transfer-encoding", "upgrade"}
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DNS = re.compile(r"srv:[A-Za-z0-9._-]+|(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def engine_catalogue() -> dict[str, Option]:
    """The options that may stand beside `engine:`."""
    settings = options_of(Settings)
    return {name: each for name, each in settings.items() if each.group == "Engine" or name in _OF_ITS_MODEL}


def read_backend(reader: Reader, node: Node, place: str) -> BackendConfig:
    entries, problems = reader.entries(node, place), reader.problems
    catalogue = options_of(BackendConfig)
    engine = engine_catalogue()
    kind = _kind(reader, catalogue.pop("kind"), entries, place)
    # `vllm: URL` is another spelling of `url`.
    catalogue["url"] = dataclasses.replace(catalogue["url"], aliases=_SERVERS)
    said = {"kind"} if kind is not None else {"kind", *_short_forms(entries)}
    rest = {key: child for key, child in entries.items() if key not in said}
    values = reader.options({**catalogue, **engine}, rest, place, known=("kind",))
    options = {name: values.pop(name) for name in engine if name in values}
    if kind is None:  # what else is wrong depends on it
        return BackendConfig()
    written = _written(entries, {**catalogue, **engine})
    for name in _FOR_SERVERS if kind == "engine" else (*_FOR_ENGINES, *engine):
        if name in written:
            problems.add(f"{place}.{written[name]}", _means_nothing(name, kind))
    values["kind"] = kind
    if kind == "engine":
        return BackendConfig(**values, engine_options=options)
    if kind in HOSTED and values.get("url") is None:
        values["url"] = HOSTED[kind]
    if values.get("url") is not None:  # written as base URLs of clients are, it means the same server
        values["url"] = values["url"].removesuffix("/v1")
    backend = BackendConfig(**values)
    _check_server(backend, written, place, problems)
    return backend


def _kind(reader: Reader, option: Option, entries: Mapping[str, Node], place: str) -> str | None:
    """The kind that was stated, by `kind:` or in short; None where that went wrong."""
    short = _short_forms(entries)
    if not short and "kind" not in entries:
        hint = "begin it with one, such as 'vllm: http://10.0.0.5:8000' or 'engine: default'"
        reader.problems.add(place, f"does not say what kind of backend it is; {hint}")
        return None
    kinds = [key.replace("-", "_") for key in short]
    if "kind" in entries:
        value = reader.option(option, entries["kind"], f"{place}.kind")
        if value is FAILED:
            return None
        kinds.insert(0, value)
    if len(set(kinds)) > 1:
        other = next(kind for kind in kinds if kind != kinds[0])
        reader.problems.add(place, f"is both {kinds[0]!r} and {other!r}; keep one of them")
        return None
    return str(kinds[0])


def _short_forms(entries: Mapping[str, Node]) -> list[str]:
    return [key for key in entries if key.replace("-", "_") in BACKEND_KINDS]


def _written(entries: Mapping[str, Node], catalogue: Mapping[str, Option]) -> dict[str, str]:
    """The options that were given, each with the spelling that was used."""
    spellings = {name: each.name for each in catalogue.values() for name in (each.name, *each.aliases)}
    used = {key.replace("-", "_"): key for key in entries}
    return {spellings[name]: key for name, key in used.items() if name in spellings}


def _means_nothing(name: str, kind: str) -> str:
    if kind != "engine":
        return f"is for engines that are started here, and this backend is a server ({kind})"
    if name == "model":
        return "is for servers; an engine's model stands after 'engine:'"
    return "is for servers, and this backend is an engine that is started here"


def _check_server(backend: BackendConfig, written: Mapping[str, str], place: str, problems: Problems) -> None:
    given = [name for name in ("url", "discover") if name in written]
    if len(given) == 2:
        problems.add(f"{place}.discover", f"cannot stand beside {written['url']!r}; keep one of them")
    elif not given and backend.kind not in HOSTED:
        problems.add(place, "has neither a url nor a way to discover one")
    elif "discover" in given and backend.kind in HOSTED:
        problems.add(f"{place}.discover", f"means nothing to {backend.kind}, which has one address")
    if backend.kind in HOSTED and "api_key" not in written:
        variable = f"${{{backend.kind.upper()}_API_KEY}}"
        problems.add(place, f"has no api_key, which {backend.kind} needs; write 'api_key: {variable}'")
    if backend.api_key is not None and (_CONTROL.search(backend.api_key) or not backend.api_key.isascii()):
        problems.add(f"{place}.api_key", "holds characters that no header may carry")
    if backend.discover is not None:
        _check_discovery(backend.discover, f"{place}.discover", problems)
    for name, text in (backend.headers or {}).items():
        if (predicate := header_problem(name, text)) is not None:
            problems.add(f"{place}.headers.{name}", predicate)


def header_problem(name: str, text: str) -> str | None:
    """Why a header cannot be added to what is sent anyway, if it cannot."""
    if not _TOKEN.fullmatch(name) or _CONTROL.search(text) or not text.isascii():
        return "is not a header that can be sent"
    if name.lower() in _OUR_HEADERS:
        hint = "; the key belongs into api_key" if name.lower() == "authorization" else ""
        return f"is set by Penstock itself{hint}"
    return None


def _check_discovery(discover: DiscoverConfig, place: str, problems: Problems) -> None:
    sources = [name for name in ("dns", "file", "register") if getattr(discover, name)]
    if len(sources) != 1:
        got = f"got {' and '.join(sources)}" if sources else "got none"
        problems.add(place, f"must have exactly one source, dns, file or register; {got}")
    if discover.dns is not None and not _DNS.fullmatch(discover.dns):
        problems.add(f"{place}.dns", f"must be 'name:port' or 'srv:name', got {discover.dns!r}")


def named(backends: tuple[BackendConfig, ...]) -> tuple[BackendConfig, ...]:
    """The same backends, each with a name of its own among them."""
    taken = {backend.name for backend in backends if backend.name}
    result = []
    for backend in backends:
        name = backend.name
        if not name:
            wish = name = _address(backend)
            number = 1
            while name in taken:
                number += 1
                name = f"{wish}-{number}"
            taken.add(name)
        result.append(dataclasses.replace(backend, name=name))
    return tuple(result)


def _address(backend: BackendConfig) -> str:
    """What tells one backend from another: its address, or what it runs."""
    if backend.url is not None:
        return urlsplit(backend.url).netloc
    if backend.discover is not None:
        return backend.discover.dns or backend.discover.file or backend.kind
    return (
        "engine"
        if backend.engine in (None, "default")
        else str(backend.engine).rstrip("/").rpartition("/")[2]
    )
