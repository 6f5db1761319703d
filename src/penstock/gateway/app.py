"""The ASGI application: which handler answers which path, and what every exchange has in common."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from penstock import logs
from penstock.errors import PenstockError
from penstock.gateway import admin, endpoints
from penstock.gateway.accounts.keys import ANYBODY, Caller
from penstock.gateway.ask import ask
from penstock.gateway.call import CLIENT_LEFT, Call, ClientGoneError
from penstock.gateway.console import routes
from penstock.gateway.state import Gateway
from penstock.protocol.anthropic_errors import anthropic_error
from penstock.protocol.errors import Failure, HTTPError, failure
from penstock.protocol.openapi import OPERATIONS, Operation

logger = logging.getLogger("penstock.gateway")

MAX_HEADER_BYTES = 64 * 1024

Handler = Callable[[Gateway, Call, Caller], Awaitable[None]]

# By the names of the OpenAPI document: what is described is what is routed. The rest asks a model.
HANDLERS: dict[str, Handler] = {
    "listModels": endpoints.list_models,
    "listModelsShort": endpoints.list_models,
    "retrieveModel": endpoints.retrieve_model,
    "tokenize": endpoints.tokenize,
    "detokenize": endpoints.detokenize,
    "listBackends": admin.list_backends,
    "registerBackend": admin.register_backend,
    "deregisterBackend": admin.deregister_backend,
    "drainBackend": admin.drain_backend,
    "invalidateCache": admin.invalidate_cache,
    "consoleState": routes.console_state,
    "consoleEvents": routes.console_events,
    "consoleReport": routes.console_report,
    "consoleFile": routes.console_file,
    "health": endpoints.health,
    "ready": endpoints.ready,
    "version": endpoints.version,
    "metrics": endpoints.metrics,
    "openapi": endpoints.document,
    "index": endpoints.index,
}


# Whose clients read errors otherwise than OpenAI's.
SHAPES: dict[str, Callable[[Failure, str], bytes]] = {"createMessage": anthropic_error}


class Endpoint:
    """One routed operation. The key is checked here, on the route that matched, not on the path as sent."""

    def __init__(self, operation: Operation, gateway: Gateway) -> None:
        self.operation = operation
        self._gateway = gateway
        self._handler = HANDLERS[operation.name] if not operation.asks else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call = scope["penstock.call"]
        call.shaped = SHAPES.get(self.operation.asks)
        if self._handler is None:
            await ask(self._gateway, call, self.operation)
        else:
            caller = ANYBODY if self.operation.open else self._gateway.keys.check(call.headers)
            await self._handler(self._gateway, call, caller)


class FrontDoor:
    """Around every exchange: a request id, bounded headers, one error shape, one count."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        routes = [
            Route(
                operation.path.replace("{model}", "{model:path}"),
                Endpoint(operation, gateway),
                methods=[operation.method],
                name=operation.name,
            )
            for operation in OPERATIONS
        ]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope, receive, send)
        logs.request_id.set(call.id)
        # Starlette raises its 404 and 405 instead of answering them when there is an outer app.
        scope["app"] = self
        scope["penstock.call"] = call
        try:
            try:
                if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
                    raise HTTPError(
                        431,
                        f"The headers are larger than {MAX_HEADER_BYTES} bytes.",
                        code="headers_too_large",
                    )
                await self._router(scope, receive, send)
            except HTTPException as error:
                await self._not_routed(call, error)
            except PenstockError as error:
                await call.answer_failure(failure(error))
        except ClientGoneError:
            call.status = CLIENT_LEFT
        except Exception as error:
            logger.exception("The request failed.")
            if not call.status:
                await call.answer_failure(failure(error))
        finally:
            endpoint = scope.get("endpoint")
            route = endpoint.operation.path if isinstance(endpoint, Endpoint) else "other"
            self._gateway.metrics.answered(route, _method(scope), call.status)

    async def _not_routed(self, call: Call, error: HTTPException) -> None:
        if error.status_code == 405:
            allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
            if call.scope["method"] == "OPTIONS":
                await call.answer_nothing({"Allow": f"{allowed}, OPTIONS"})
                return
            message = f"This path does not take {call.scope['method'][:16]}; it takes {allowed}."
            known = HTTPError(405, message, code="method_not_allowed", headers={"Allow": allowed})
        else:
            message = "There is nothing at this path; /openapi.json lists what there is."
            known = HTTPError(404, message, code="unknown_url")
        await call.answer_failure(failure(known))


def _method(scope: Scope) -> str:
    # A client may invent methods; a label must not grow with its imagination.
    method: str = scope["method"]
    return method if method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH") else "other"
