"""The routes that plugins offer: made once at start, with whose they are. Knows no HTTP: what is wrong with a table is found by
`http.route_rules`, which is told of all tables together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jackfield.hookspecs import FaultScope, Route, RouteError
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.load import LoadedStack
from jackfield.stack.runtime.faults import FaultLedger, blame, ready_for
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.runtime.steps import Steps

log = logging.getLogger(__name__)

T = TypeVar("T")


class RouteFault(Exception):
    """A handler of a plugin failed, and the ledger has it; the client gets fixed words."""


@dataclass(frozen=True, kw_only=True)
class PluginRoutes:
    """One plugin's table. key: "kind.instance"; described: for messages; features: as its manifest declares them."""

    key: str
    described: str
    features: frozenset[str]
    routes: tuple[Route, ...]
    ledger: FaultLedger
    meter: Meter

    async def watched(self, method: str, work: Coroutine[Any, Any, T]) -> T:
        """Run a piece of the plugin's code: metered as `method`, its errors booked.

        Raises RouteError as the plugin did, CancelledError if the caller was cancelled, StopAsyncIteration of a generator, and
        RouteFault for all else; PluginStop in place of that with `--plugin-faults raise`.
        """
        expected = (RouteError, StopAsyncIteration, asyncio.CancelledError, GeneratorExit)
        try:
            return await Steps(work, self.meter, self.key, method, expected)
        except (RouteError, StopAsyncIteration, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._book(error)
            raise RouteFault from error
        except BaseException as error:
            # Also what would end the event loop: a handler ends its request, and nothing else.
            self._book(error)
            raise RouteFault from error

    def _book(self, error: BaseException) -> None:
        known = ready_for(error)
        blame(known, self.key)
        self.ledger.record(self.key, FaultScope.REQUEST, known)


OnRoutes = Callable[[Sequence[PluginRoutes]], None]
"""Is told of all tables before the model is up, and raises ConfigurationError for what cannot be served."""


def plugin_routes(
    loaded: LoadedStack, ledger: FaultLedger, meter: Meter, on_routes: OnRoutes | None
) -> tuple[PluginRoutes, ...]:
    """Of every plugin of kind `routes` in this process, in stack order, checked by `on_routes`; None: nobody would serve them,
    and none are made. Raises ConfigurationError."""
    if on_routes is None:
        return ()
    made = []
    for plugin in loaded.of("routes"):
        selected = plugin.selected
        routes = tuple(plugin.make({}))
        for route in routes:
            if not isinstance(route, Route):
                raise PluginLoadError(
                    f"{selected.described}: jackfield_routes gave {type(route).__name__}, not a jackfield.hookspecs.Route"
                )
        made.append(
            PluginRoutes(
                key=selected.key,
                described=selected.described,
                features=frozenset(selected.manifest.features),
                routes=routes,
                ledger=ledger,
                meter=meter,
            )
        )
    on_routes(made)
    return tuple(made)
