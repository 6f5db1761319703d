"""Users' own functions on the logits: given as such, or by name.

A processor is called for every token with the prompt's ids, the ids generated so far and the next token's
logits (a float32 tensor of the vocabulary's size), and returns logits. Installed packages offer processors
by name as entry points of the group `penstock.logits_processors`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from penstock.engine.schedule.sequence import LogitsProcessor
from penstock.errors import InvalidRequestError

GROUP = "penstock.logits_processors"
Processors = Sequence[LogitsProcessor | str]


def find_processors(given: Processors) -> tuple[LogitsProcessor, ...]:
    """Each as a function: itself, an installed entry point's name, or 'module:attribute'."""
    if callable(given) or isinstance(given, str):
        given = [given]
    return tuple(each if callable(each) else _named(each) for each in given)


def _named(name: object) -> LogitsProcessor:
    if not isinstance(name, str):
        raise _refusal(f"A logits processor is a function or the name of one, got {type(name).__name__}.")
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in installed:
        return _loaded(name, installed[name].load)
    if ":" not in name:
        known = ", ".join(sorted(installed)) or "none"
        raise _refusal(
            f"There is no logits processor {name!r}; installed are: {known}. Others are named by "
            "'module:attribute'."
        )
    return _loaded(name, lambda: _attribute(name))


def _attribute(name: str) -> object:
    module, _, path = name.partition(":")
    found: object = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _loaded(name: str, load: Callable[[], object]) -> LogitsProcessor:
    try:
        found = load()
    except Exception as error:  # importing is running somebody else's code
        reason = str(error).rstrip(".") or type(error).__name__
        raise _refusal(f"The logits processor {name!r} cannot be loaded: {reason}.") from error
    if not callable(found):
        raise _refusal(f"The logits processor {name!r} is no function but a {type(found).__name__}.")
    return found


def _refusal(sentence: str) -> InvalidRequestError:
    return InvalidRequestError(sentence, param="logits_processors")
