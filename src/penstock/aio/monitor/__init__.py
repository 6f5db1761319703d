"""How good the lower tiers really are: what to check, what the checks add up to, what follows from it.

Pure: times and draws are arguments, verdicts come from outside and decisions go there; the same objects run
in simulations. Must not know texts, answers, HTTP or the store.
"""

from penstock.aio.monitor.book import Change, Promotion, QualityBook
from penstock.aio.monitor.bounds import samples_needed, wilson
from penstock.aio.monitor.retraining import RetrainRule
from penstock.aio.monitor.rollout import Event, Rollout, RolloutRules, Trial, gain
from penstock.aio.monitor.sampler import Sample, Sampler

__all__ = [
    "Change",
    "Event",
    "Promotion",
    "QualityBook",
    "RetrainRule",
    "Rollout",
    "RolloutRules",
    "Sample",
    "Sampler",
    "Trial",
    "gain",
    "samples_needed",
    "wilson",
]
