"""The `penstock` command: one file for each subcommand, thin over the other rooms.

May import every room; those that take long to import only inside command bodies, so that
`penstock --help` answers at once. Turns every error into a sentence and an exit code.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        # It asks a server to read its configuration again. Until that has been read once there is nothing to
        # do, but left alone it would end the process; imports alone take long enough for one to come.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from penstock.cli.app import main as run

    run()
