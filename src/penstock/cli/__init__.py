"""The `penstock` command: one file for each subcommand, thin over the other rooms.

May import every room, but only inside command bodies, so that `penstock --help` answers at once.
The only room that prints, and the one that turns an error into a sentence and an exit code.
"""

from penstock.cli.app import main

__all__ = ["main"]
