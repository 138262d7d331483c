"""Kind `metrics`: where metric samples go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A declaration. type: "counter" | "gauge" | "histogram", and no other; unit: "seconds", "tokens", ... or "" for counts.

    buckets: upper bounds of a histogram, ascending, without infinity.
    """

    name: str
    type: str
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One observation. A counter's value is the increase, a gauge's the value, a histogram's one observation."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """What a scrape asks for. accept: its `Accept` header, "" without one."""

    accept: str = ""


@dataclass(frozen=True, kw_only=True)
class Exposition:
    """Answer to a scrape."""

    content_type: str
    body: bytes


class MetricsSink(ABC):
    """Lives in the main process. `declare`, `record` and `close` are called on one thread of its own, behind a bounded queue:
    what a slow sink cannot take is dropped and counted. An error in `declare` stops the start; any later exception is counted
    and logged, and at the fault limit the sink is quarantined. It never reaches a request."""

    @abstractmethod
    def declare(self, metrics: Sequence[Metric]) -> None:
        """All metrics of the run, once, before the first sample."""

    @abstractmethod
    def record(self, samples: Sequence[Sample]) -> None:
        """A batch of samples, in order."""

    @abstractmethod
    def close(self) -> None:
        """Flush and free."""

    def expose(self, scrape: Scrape) -> Exposition | None:
        """Answer a scrape, or None: this sink is not scraped. Called on other threads than `record`, several at once, while it
        runs; what was recorded before the scrape is usually there."""
        return None


@dataclass(frozen=True, kw_only=True)
class MetricsContext(PluginContext):
    """prefix: goes before every metric name; constant_labels: labels of the whole run (model_name, stack hash, ...)."""

    prefix: str = "jackfield_"
    constant_labels: tuple[tuple[str, str], ...] = field(default=())


class MetricsSpecs:
    @hookspec
    def jackfield_metrics_sink(self, context: MetricsContext) -> MetricsSink:  # type: ignore[empty-body]
        """Make the sink.

        Process: main. When: once at start for every use of the plugin. Cost: any. Example:

            @hookimpl
            def jackfield_metrics_sink(context: MetricsContext) -> MetricsSink:
                from my_package.sink import MySink

                return MySink(context)
        """
