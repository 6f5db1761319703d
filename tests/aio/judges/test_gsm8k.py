"""The judge on answers of two real models: does its score tell whether the cheaper one was right?"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from penstock.aio.judges import judge

LOW, EXPERT = "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"


@pytest.mark.data
def test_the_score_tells_whether_the_low_tier_was_right() -> None:
    folder = os.environ.get("PENSTOCK_DATA")
    if not folder:
        pytest.skip("PENSTOCK_DATA does not name a folder with the routing data")
    with gzip.open(Path(folder) / "routing" / "routellm_gsm8k.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    verdicts = [judge(row["prompt"], row[f"{LOW}_response"], row[f"{EXPERT}_response"]) for row in rows]
    scores = np.array([verdict.score for verdict in verdicts])
    right = np.array([row[LOW] == "True" for row in rows])
    above = scores[right][:, None] - scores[~right][None]
    assert float(((above > 0) + 0.5 * (above == 0)).mean()) >= 0.95
    # A probability that is used as one: near the truth on the whole, and for those it is sure of.
    assert abs(scores.mean() - right.mean()) < 0.03
    assert right[scores > 0.9].mean() > 0.93
    assert right[scores < 0.1].mean() < 0.1
    assert np.mean([verdict.kind in ("number", "cut") for verdict in verdicts]) > 0.99
