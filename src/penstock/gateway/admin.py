"""For administrators: who answers, and servers that come and go by saying so."""

from __future__ import annotations

import re
import time
from typing import Final

from penstock.errors import InvalidRequestError
from penstock.gateway.accounts.keys import Caller
from penstock.gateway.assembly import group_of
from penstock.gateway.cache.store import CacheStoreError
from penstock.gateway.call import Call
from penstock.gateway.deployment import Deployment
from penstock.gateway.listening import is_address, is_loopback
from penstock.gateway.replicas import replica_now
from penstock.gateway.state import Gateway
from penstock.protocol.admin import (
    DEFAULT_TTL,
    BackendList,
    Drained,
    Invalidated,
    ModelState,
    Registered,
    RegisterRequest,
    parse_drain,
    parse_invalidate,
    parse_register,
)
from penstock.protocol.decode import shown
from penstock.protocol.errors import UNAVAILABLE, UNAVAILABLE_RETRY_SECONDS, HTTPError, retry

# What proxies add to what they pass on.
_FORWARDED: Final = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-forwarded-server",
        b"x-real-ip",
        b"cf-connecting-ip",
        b"true-client-ip",
        b"x-client-ip",
    }
)
_KEY: Final = "a key made with 'penstock keys create --admin'"


def check_admin(gateway: Gateway, call: Call, caller: Caller) -> None:
    """Where there are keys, only those made for it may; without, everybody on this machine.

    Whoever registers a server reads what is asked of it: a door that was opened to everybody by
    --allow-public is not open for that.
    """
    if gateway.keys.locked:
        if not caller.admin:
            raise HTTPError(403, f"This needs {_KEY}.", code="admin_only")
    elif not from_here(call):
        raise HTTPError(
            403,
            "While there are no keys this is for programs on this machine alone, by its address or as "
            f"localhost, and not through a proxy. From elsewhere it needs {_KEY}.",
            code="admin_only",
        )


def from_here(call: Call) -> bool:
    """Whether it comes from this machine and was not passed on: a proxy's requests are its clients'."""
    client = call.scope.get("client")
    if client is None or not is_loopback(client[0]) or not _FORWARDED.isdisjoint(call.headers):
        return False
    # A page of somebody else's whose name leads here (DNS rebinding) is on this machine too, but its
    # browser says which name it was.
    return _named_here(call)


def _named_here(call: Call) -> bool:
    """Whether it was asked for by an address or as localhost, and by no page of another site."""
    if call.headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
        return False
    given = call.headers.get(b"host", b"")
    origin = call.headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2].lower() != given.lower():
        return False
    host = given.decode("latin-1")
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    return not name or name.lower() == "localhost" or is_address(name.strip("[]"))


async def list_backends(gateway: Gateway, call: Call, caller: Caller) -> None:
    check_admin(gateway, call, caller)
    now, console = time.monotonic(), gateway.console
    states = [
        ModelState(
            model=deployment.name,
            waiting={str(name): count for name, count in deployment.dispatcher.queue.counts.items()},
            replicas=[
                replica_now(
                    member, now, None if console is None else console.prefix_hits(deployment.name, member)
                )
                for member in deployment.dispatcher.members.values()
            ],
        )
        for deployment in gateway.deployments.values()
    ]
    await call.answer_json(BackendList(data=states))


async def register_backend(gateway: Gateway, call: Call, caller: Caller) -> None:
    check_admin(gateway, call, caller)
    request = parse_register(await call.body())
    backend = _backend(gateway, request)
    ttl = DEFAULT_TTL if request.ttl is None else request.ttl
    new = await gateway.registry.register(group_of(request.model, backend), request.url, ttl)
    await call.answer_json(Registered(model=request.model, backend=backend, url=request.url, changed=new))


async def deregister_backend(gateway: Gateway, call: Call, caller: Caller) -> None:
    check_admin(gateway, call, caller)
    request = parse_register(await call.body())
    backend = _backend(gateway, request)
    known = await gateway.registry.deregister(group_of(request.model, backend), request.url)
    await call.answer_json(Registered(model=request.model, backend=backend, url=request.url, changed=known))


async def drain_backend(gateway: Gateway, call: Call, caller: Caller) -> None:
    check_admin(gateway, call, caller)
    request = parse_drain(await call.body())
    deployment = _deployment(gateway, request.model)
    members = deployment.dispatcher.members
    # One that is not there may come back, and must be found as it was left.
    if request.drained and request.replica not in members:
        known = ", ".join(members) or "none"
        raise HTTPError(
            404,
            f"{request.model} has no replica {shown(request.replica)}; there is {known}.",
            code="replica_not_found",
            param="replica",
        )
    changed = await gateway.drain(deployment.name, request.replica, request.drained)
    member = members.get(request.replica)
    await call.answer_json(
        Drained(
            model=deployment.name,
            replica=request.replica,
            drained=request.drained,
            changed=changed,
            requests=0 if member is None else member.replica.requests,
        )
    )


async def invalidate_cache(gateway: Gateway, call: Call, caller: Caller) -> None:
    check_admin(gateway, call, caller)
    request = parse_invalidate(await call.body())
    if gateway.cache is None:
        raise HTTPError(404, "There is no response cache; 'cache: exact' turns it on.", code="cache_off")
    try:
        await gateway.cache.invalidate(request.tenant, request.model)
    except CacheStoreError as error:
        headers = retry(UNAVAILABLE_RETRY_SECONDS)
        raise HTTPError(
            503, str(error), code="cache_unavailable", type=UNAVAILABLE, headers=headers
        ) from error
    await call.answer_json(Invalidated(tenant=request.tenant, model=request.model))


def _backend(gateway: Gateway, request: RegisterRequest) -> str:
    """The name of the backend that takes the server."""
    deployment = _deployment(gateway, request.model)
    takers = [
        backend.name
        for backend in deployment.config.backends
        if backend.discover is not None and backend.discover.register
    ]
    if request.backend is not None and request.backend in takers:
        return request.backend
    if request.backend is None and len(takers) == 1:
        return takers[0]
    among = f"one of {', '.join(takers)}" if takers else "but none has 'discover: {register: true}'"
    raise InvalidRequestError(
        f"backend must name a backend of {request.model} that takes servers: {among}.", param="backend"
    )


def _deployment(gateway: Gateway, name: str) -> Deployment:
    deployment: Deployment | None = gateway.deployments.get(name)
    if deployment is None:
        raise HTTPError(404, f"There is no model {shown(name)}.", code="model_not_found", param="model")
    return deployment
