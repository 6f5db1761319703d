"""What tests of the native path need before they can run."""

from __future__ import annotations

import pytest

from penstock.engine.native.library import library

needs_kernels = pytest.mark.skipif(
    library() is None,
    reason="the native kernels are not built here, or not for this processor; "
    "`python -m penstock.engine.native.build` builds them where there is a C compiler",
)
