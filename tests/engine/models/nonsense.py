"""Values that no field of a model's description should have, but some file will."""

from __future__ import annotations

NAN, INF = float("nan"), float("inf")
NONSENSE = [None, True, False, -1, 0, 1, 3, 10**18, 10**400, 0.5, 1e-300, 1e308, -0.0, NAN, INF, "x", "",
            [], {}, [None], [1, "a"], {"rope_type": "yarn"}, {"full_attention": 3}]  # fmt: skip
