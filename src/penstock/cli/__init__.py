"""The `penstock` command: one file for each subcommand, thin over the other rooms.

May import every room; those that take long to import only inside command bodies, so that
`penstock --help` answers at once. Turns every error into a sentence and an exit code.
"""

from penstock.cli.app import main

__all__ = ["main"]
