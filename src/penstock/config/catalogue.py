"""How options are declared: a dataclass field each, with its kind, help and spellings beside it.

The reader of files, the flags, the variables and the documentation are all read off these fields.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from penstock.config.values import NAMES, Kind


@dataclass(frozen=True, slots=True)
class Section:
    """The kind of an option that holds options of its own."""

    of: type
    form: Literal["one", "named", "list"]  # one section; many by name; a list of them


def option(
    default: Any,
    kind: Kind | Section,
    help: str,
    *,
    group: str = "",
    aliases: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """A dataclass field that is an option. `None` as the default makes `null` and `auto` values of it."""
    return dataclasses.field(
        default=default,
        repr=not secret,
        metadata={"kind": kind, "help": help, "group": group, "aliases": aliases, "secret": secret},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row of a catalogue: how an option is spelled everywhere, and what it takes."""

    name: str
    kind: Any  # Kind, or Section in what only the file can hold
    default: Any
    help: str
    group: str
    aliases: tuple[str, ...]  # other names for the same thing, such as vLLM's
    secret: bool

    @property
    def optional(self) -> bool:
        return self.default is None

    @property
    def variable(self) -> str:
        return "PENSTOCK_" + self.name.upper()

    @property
    def flags(self) -> tuple[str, ...]:
        """Ours first. Lists are repeated on the command line: their flag is the singular if there is one."""
        names = (self.name, *self.aliases)
        if self.kind is NAMES and self.aliases:
            names = self.aliases
        return tuple("--" + name.replace("_", "-") for name in names)


def options_of(section: type) -> dict[str, Option]:
    """A section's options by name, in the order of declaration; fields that are no option are left out."""
    return {
        field.name: Option(name=field.name, default=field.default, **field.metadata)
        for field in dataclasses.fields(section)
        if "kind" in field.metadata
    }
