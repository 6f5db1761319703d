"""Who waits for a replica, in which order, for how long, and who is refused: classes, fairness, deadlines.

Pure Python over tickets: no HTTP, no tokens' text, no replicas. It must not know a clock, a thread or a
socket: every call is given `now`, in monotonic seconds.
"""

from penstock.gateway.queue.fair import FairQueue
from penstock.gateway.queue.places import Places
from penstock.gateway.queue.service import CLASS_HEADER, TIERS, choose_class
from penstock.gateway.queue.ticket import LEVELS, QueueLimits, QueueRefusal, Room, ServiceClass, Ticket

__all__ = [
    "CLASS_HEADER",
    "LEVELS",
    "TIERS",
    "FairQueue",
    "Places",
    "QueueLimits",
    "QueueRefusal",
    "Room",
    "ServiceClass",
    "Ticket",
    "choose_class",
]
