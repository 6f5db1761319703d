"""The rooms keep to their borders when they run, not only on paper (`lint-imports` checks the paper)."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

# Stands in for a machine on which these packages were never installed.
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
SERVER_PACKAGES = (
    "aiohttp",
    "gguf",
    "jinja2",
    "msgspec",
    "prometheus_client",
    "rich",
    "starlette",
    "tokenizers",
    "typer",
    "uvicorn",
    "uvloop",
    "yaml",
)


def python(code: str, *, without: tuple[str, ...] = ()) -> str:
    program = HIDE.format(hidden=without) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_penstock_imports_nothing_else() -> None:
    loaded = python(
        """
        before = set(sys.modules)
        import penstock
        print({name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))
        """
    )
    assert loaded.strip() == "{'penstock'}"


def test_the_names_of_the_package_are_found_on_first_use() -> None:
    code = """
    import penstock
    from penstock import SamplingParams
    from penstock.engine.request import SamplingParams as same
    assert SamplingParams is same
    assert {"LLM", "SamplingParams", "__version__"} <= set(dir(penstock))
    try:
        penstock.nothing
    except AttributeError as error:
        print(error)
    """
    assert python(code, without=("torch",)) == "module 'penstock' has no attribute 'nothing'\n"


def test_the_front_door_imports_without_torch() -> None:
    python("import penstock.gateway.server, penstock.gateway.app, penstock.cli", without=("torch",))


def test_the_front_door_does_not_load_torch_where_it_is_installed() -> None:
    assert python("import penstock.gateway.server; print('torch' in sys.modules)") == "False\n"


def test_the_engine_imports_without_the_servers_packages() -> None:
    pytest.importorskip("torch")
    python("import penstock.engine.core", without=SERVER_PACKAGES)


@pytest.mark.parametrize("room", ["penstock.engine.schedule.scheduler", "penstock.engine.memory.manager"])
def test_what_decides_imports_without_torch_and_numpy(room: str) -> None:
    python(f"import {room}", without=("torch", "numpy", *SERVER_PACKAGES))


def test_the_help_loads_nothing_heavy() -> None:
    loaded = python(
        """
        from penstock.cli.app import run
        assert run(["--help"]) == 0
        heavy = {"torch", "numpy", "aiohttp", "starlette", "uvicorn", "tokenizers", "gguf", "yaml", "jinja2"}
        print(sorted(heavy & set(sys.modules)))
        """
    )
    assert loaded.splitlines()[-1] == "[]"
