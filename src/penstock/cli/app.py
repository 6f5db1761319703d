"""The list of commands, and what happens when one of them fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    bench,
    cache,
    chat,
    complete,
    config,
    doctor,
    keys,
    observe,
    pull,
    route,
    serve,
    top,
    usage,
)
from penstock.errors import ConfigError, InvalidRequestError, ModelError, PenstockError

USER_MISTAKES = (ConfigError, ModelError, InvalidRequestError)
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

app = typer.Typer(
    name="penstock",
    help="The LLM serving stack in one package: an engine, and an OpenAI-compatible front door.",
    epilog="[dim]Start here:[/dim] penstock serve [dim]and, in another terminal,[/dim] penstock chat --url http://127.0.0.1:8000",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version_and_leave(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version_and_leave, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=chat.EPILOG)(chat.chat)
app.command(epilog=complete.EPILOG)(complete.complete)
app.command(epilog=pull.EPILOG)(pull.pull)
app.command(epilog=doctor.EPILOG)(doctor.doctor)
app.command(epilog=usage.EPILOG)(usage.usage)
app.command(epilog=top.EPILOG)(top.top)
app.add_typer(keys.app, name="keys")
app.add_typer(bench.app, name="bench")
app.add_typer(config.app, name="config")
app.add_typer(route.app, name="route")
app.add_typer(cache.app, name="cache")
app.add_typer(observe.app, name="observe")


@app.command()
def version() -> None:
    """Print the versions of Penstock, Python and what the engine runs on."""
    from penstock.bench.machine import versions

    for name, number in versions().items():
        print(f"{name} {number}")


def run(arguments: Sequence[str]) -> int:
    """Run one command and give its exit code; a mistake of the user's is one sentence on stderr."""
    try:
        code = app(args=list(arguments), prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _refuse_usage(error)
    except USER_MISTAKES as error:
        return _complain(str(error), 2)
    except PenstockError as error:
        return _complain(str(error), 1)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _complain("This command runs a model itself, which needs torch: install penstock[engine].", 2)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left (`| head`). Python would complain once more while closing stdout.
        _give_up_output()
        return 1
    except OSError as error:
        if _takes_output():
            raise
        _give_up_output()
        return _complain(f"The output cannot be written: {error.strerror or error}.", 1)
    return code if isinstance(code, int) else 0


def _takes_output() -> bool:
    """Whether a failure was another's than the output's: then the end of a line can still be written."""
    try:
        print(flush=True)
    except OSError:
        return False
    return True


def _give_up_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_usage(error: typer.TyperException) -> int:
    message = error.format_message().rstrip(".")
    if not message:  # no command was named, and the help is on the screen already
        return 2
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "penstock"
    return _complain(f"{message}; see `{path} --help`.", 2)


def _complain(sentence: str, code: int) -> int:
    print(f"penstock: {sentence}", file=sys.stderr)
    return code


def _replace_closed_streams() -> None:
    """Whoever closes a stream (`>&-`) does not want it; the next file opened must not take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process


def main() -> None:
    _replace_closed_streams()
    sys.exit(run(sys.argv[1:]))
