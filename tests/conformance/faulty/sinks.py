"""Metrics sinks with one fault each, on top of one that keeps sums and last values and shows them as text."""

from __future__ import annotations

import threading
from typing import Any

from jackfield.hookspecs import Exposition, MetricsSink, hookimpl

SCRAPE = "a_scrape_sees_what_was_recorded"
CAUGHT = {
    "good": (),
    "no-histograms": ("takes_every_metric_of_a_run", "behind_the_thread_of_a_run"),
    "empties-the-batch": ("takes_batches_of_any_size",),
    "latin-only": ("takes_labels_in_any_script",),
    "sulks": ("a_bad_sample_breaks_nothing",),
    "closes-once": ("close_twice",),
    "closes-what-it-wrote": ("close_without_a_sample",),
    "no-sums": (SCRAPE,),
    "no-prefix": (SCRAPE, "two_sinks_are_apart", "a_bad_sample_breaks_nothing", "takes_labels_in_any_script"),
    "no-constant-labels": (SCRAPE,),
    "raw-labels": ("takes_labels_in_any_script",),
    "buckets-of-their-own": ("a_scrape_sees_histograms",),
    "keeps-what-does-not-fit": (),
    "buffers": (),
    "one-for-all": ("two_sinks_are_apart", SCRAPE),
    "one-scraper": ("scrapes_while_it_records",),
    "one-thread": ("behind_the_thread_of_a_run",),
}


class Good(MetricsSink):
    def __init__(self, context: Any) -> None:
        self.prefix, self.constant = context.prefix, context.constant_labels
        self.types: dict[str, str] = {}
        self.values: dict[Any, float] = {}
        self.lock = threading.Lock()

    def declare(self, metrics: Any) -> None:
        self.types = {metric.name: metric.type for metric in metrics}

    def record(self, samples: Any) -> None:
        for sample in samples:
            if sample.name in self.types:
                self.add(sample)

    def add(self, sample: Any) -> None:
        key = (sample.name, sample.labels)
        with self.lock:
            old = self.values.get(key, 0.0) if self.types[sample.name] == "counter" else 0.0
            self.values[key] = old + sample.value

    def close(self) -> None:
        pass

    def expose(self, scrape: Any) -> Exposition | None:
        with self.lock:
            values = {**{(name, ()): 0.0 for name in self.types if "total" not in name}, **self.values}
        lines = [f"{self.prefix}{name}{self.labels(labels)} {value}" for (name, labels), value in values.items()]
        told = [f"# TYPE {self.prefix}{name} {kind}" for name, kind in self.types.items()]
        return Exposition(content_type="text/plain", body="\n".join([*told, *lines]).encode())

    def labels(self, labels: Any) -> str:
        every = (*self.constant, *labels)
        return "{" + ",".join(f"{name}={value!r}" for name, value in every) + "}" if every else ""


class NoHistograms(Good):
    def declare(self, metrics: Any) -> None:
        if len(metrics) > 3 and any(metric.type == "histogram" for metric in metrics):
            raise ValueError("histograms are not supported")
        super().declare(metrics)

    def close(self) -> None:
        self.types = {}


class EmptiesTheBatch(Good):
    def record(self, samples: Any) -> None:
        super().record(samples)
        if isinstance(samples, list):
            samples.clear()


class LatinOnly(Good):
    def add(self, sample: Any) -> None:
        for _, value in sample.labels:
            value.encode("latin-1")
        super().add(sample)


class Sulks(Good):
    broken = False

    def record(self, samples: Any) -> None:
        self.broken |= any(sample.name not in self.types for sample in samples)
        if self.broken:
            raise ValueError("a sample was not declared")
        super().record(samples)


class ClosesOnce(Good):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class ClosesWhatItWrote(Good):
    def close(self) -> None:
        min([*self.values.values(), *([0.0] if self.types and "made_now" not in self.types else [])])


class NoSums(Good):
    def add(self, sample: Any) -> None:
        with self.lock:
            self.values[(sample.name, sample.labels)] = sample.value


class NoPrefix(Good):
    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.prefix = ""


class NoConstantLabels(Good):
    def labels(self, labels: Any) -> str:
        return "{" + ",".join(f"{name}={value!r}" for name, value in labels) + "}" if labels else ""


class RawLabels(Good):
    def labels(self, labels: Any) -> str:
        every = (*self.constant, *labels)
        return "{" + ",".join(f'{name}="{value}"' for name, value in every) + "}" if every else ""


class BucketsOfTheirOwn(Good):
    """Each bucket counts what is between its bound and the one before."""

    def expose(self, scrape: Any) -> Exposition | None:
        text = super().expose(scrape)
        assert text is not None
        counts = {"0.1": 1, "1.0": 2, "+Inf": 1}
        lines = [f'{self.prefix}made_seconds_bucket{{le="{bound}"}} {count}' for bound, count in counts.items()]
        return Exposition(content_type=text.content_type, body=text.body + b"\n" + "\n".join(lines).encode())


class KeepsWhatDoesNotFit(Good):
    """Odd, and right: a sample with labels that were not declared is a series of its own, told first."""

    def expose(self, scrape: Any) -> Exposition | None:
        self.values = dict(sorted(self.values.items(), key=lambda item: -len(item[0][1])))
        return super().expose(scrape)


class Buffers(Good):
    """Odd, and right: it is not scraped, and sends when there is enough."""

    def record(self, samples: Any) -> None:
        self.waiting = [*getattr(self, "waiting", []), *samples][:1000]

    def expose(self, scrape: Any) -> Exposition | None:
        return None


class OneForAll(Good):
    shared: dict[Any, float] = {}  # noqa: RUF012  the fault

    def declare(self, metrics: Any) -> None:
        super().declare(metrics)
        self.shared.pop(("made_total", (("what", "a"),)), None)
        self.values = self.shared


class OneScraper(Good):
    scraper = 0

    def expose(self, scrape: Any) -> Exposition | None:
        if threading.current_thread() is not threading.main_thread():
            self.scraper = self.scraper or threading.get_ident()
            if self.scraper != threading.get_ident():
                raise RuntimeError("another thread scraped before")
        return super().expose(scrape)


class OneThread(Good):
    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.owner = threading.get_ident()

    def record(self, samples: Any) -> None:
        if threading.get_ident() != self.owner:
            raise RuntimeError("objects created in a thread can only be used in that same thread")
        super().record(samples)


@hookimpl
def jackfield_metrics_sink(context: Any) -> MetricsSink:
    made: MetricsSink = globals()[context.name.replace("-", " ").title().replace(" ", "")](context)
    return made
