"""One typed configuration, and its errors: flags > environment (PENSTOCK_*) > penstock.yaml > defaults.

`Settings` lists every option once, with its help, spellings and parser; the command line,
the environment, the file and the documentation are read off that list. Knows the engine's
option names (`engine.config`), never the engine, the network or a terminal.
"""

from penstock.config.load import load_settings
from penstock.config.settings import Option, Settings, options, options_table

__all__ = ["Option", "Settings", "load_settings", "options", "options_table"]
