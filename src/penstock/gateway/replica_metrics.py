"""Queues and replicas as metrics: read when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.gateway.deployment import Deployment
from penstock.observe.catalogue import Families
from penstock.observe.instruments import copy


def tell_replicas(families: Families, deployments: Sequence[Deployment]) -> None:
    queues = [(deployment.name, deployment.dispatcher.queue) for deployment in deployments]
    copy(
        families.waiting,
        (((name, each), count) for name, queue in queues for each, count in queue.counts.items()),
    )
    copy(families.waiting_tokens, (((name,), queue.tokens) for name, queue in queues))
    members = [
        ((deployment.name, member.backend.name), member)
        for deployment in deployments
        for member in deployment.dispatcher.members.values()
    ]
    copy(
        families.replicas_healthy,
        (((deployment.name,), deployment.dispatcher.healthy_count) for deployment in deployments),
    )
    copy(families.healthy, ((labels, member.healthy) for labels, member in members))
    copy(families.drained, ((labels, member.drained) for labels, member in members))
    copy(families.replica_requests, ((labels, member.replica.requests) for labels, member in members))
    copy(families.replica_capacity, ((labels, member.backend.capacity) for labels, member in members))
    loads = [(labels, load) for labels, member in members if (load := member.backend.load()) is not None]
    copy(families.replica_running, ((labels, load.running) for labels, load in loads))
    copy(families.replica_waiting, ((labels, load.waiting) for labels, load in loads))
    copy(
        families.replica_kv_usage,
        ((labels, load.kv_usage) for labels, load in loads if load.kv_usage is not None),
    )
    copy(
        families.replica_acceptance,
        ((labels, load.acceptance) for labels, load in loads if load.acceptance is not None),
    )
