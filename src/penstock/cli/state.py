"""Where a command finds the server's state: keys and ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.config import load_settings

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.gateway.store import Database

BUSY_SECONDS = 5.0  # a person has more patience than a server

StateDir = Annotated[
    str | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Folder of keys and ledger. [dim]Default: as configured, or state in PENSTOCK_HOME.[/dim]",
        show_default=False,
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file; penstock.yaml in this folder otherwise.",
        show_default=False,
    ),
]


def state_settings(state_dir: str | None, config: str | None) -> Settings:
    return load_settings({"state_dir": ("--state-dir", state_dir)}, config=config)


@contextmanager
def open_state(settings: Settings, *, create: bool) -> Iterator[Database | None]:
    """The state that the settings name; None if there is none and none is to be made."""
    from penstock.gateway.store import Database, state_folder
    from penstock.gateway.store.database import FILE_NAME

    folder = state_folder(settings.state_dir)
    if not create and not (folder / FILE_NAME).exists():
        yield None
        return
    with closing(Database(folder, busy_seconds=BUSY_SECONDS)) as database:
        yield database
