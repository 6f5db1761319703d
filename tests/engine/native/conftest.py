"""The same tests with every variant of the kernels that runs here."""

from __future__ import annotations

import pytest

from penstock.engine.native.build import VARIANTS, is_current
from penstock.engine.native.library import VARIABLE, cpu_flags

HERE = [name for name, needs in VARIANTS.items() if cpu_flags().issuperset(needs) and is_current(name)]


@pytest.fixture(params=HERE or ["auto"])
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(VARIABLE, request.param)
    return str(request.param)
