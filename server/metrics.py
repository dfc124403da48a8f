"""What the server tells Prometheus: its traffic, how old each manifest is, and how long each key is still good.

The gauges are computed when they are asked for, from the site's files alone, so that they also tell of changes that
other processes made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from registry.errors import PtdockError
from registry.manifest import Manifest
from registry.service import Registry
from registry.site import Directory
from server.health import Health

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DAY = 86400
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 120)


class Metrics:
    """One server's metrics; `route` is always a route's name, never a path that a client chose."""

    def __init__(self, registry: Registry, health: Health, clock: Callable[[], float] = time.time) -> None:
        self._collectors = CollectorRegistry()
        traffic = ("method", "route", "status")
        self._requests = Counter("ptdock_requests", "Answered requests.", traffic, registry=self._collectors)
        self._bytes = Counter("ptdock_sent_bytes", "Bytes of bodies.", ("route",), registry=self._collectors)
        self._seconds = Histogram(
            "ptdock_request_seconds",
            "From a request to its answer's end.",
            ("route",),
            registry=self._collectors,
            buckets=_SECONDS,
        )
        self._collectors.register(Site(registry, clock))
        self._collectors.register(Reported(health))

    def count(self, method: str, route: str, status: int, size: int, seconds: float) -> None:
        """Note one answered request; `size` in bytes."""
        self._requests.labels(method, route, str(status)).inc()
        self._bytes.labels(route).inc(size)
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._collectors)


class Site(Collector):
    """Gauges about what is published."""

    def __init__(self, registry: Registry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing beforehand: the names are those of `collect`."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges as of now."""
        now = self._clock()
        manifests = list(_manifests(self._registry.site))
        yield _gauge("ptdock_manifest_age_seconds", "Since it was issued.", "channel", _ages(manifests, now))
        yield _gauge("ptdock_manifest_expiry_days", "Days until it expires.", "channel", _lives(manifests, now))
        yield _gauge("ptdock_manifest_sequence", "Its sequence.", "channel", {m.channel: m.sequence for m in manifests})
        yield _gauge("ptdock_key_expiry_days", "Days until what a role signed expires.", "role", self._keys(now))

    def _keys(self, now: float) -> dict[str, float]:
        try:
            roles = self._registry.signed_site().store.status()
        except PtdockError:  # no keys: nothing to tell
            return {}
        return {role.role: left for role in roles if (left := role.days_left(int(now))) is not None}


class Reported(Collector):
    """What devices reported."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Nothing beforehand, as above."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counts as of now."""
        labels = ["channel", "release", "code"]
        family = CounterMetricFamily("ptdock_device_reports", "What devices reported of their syncs.", labels=labels)
        for (channel, release, code), count in self._health.counts():
            family.add_metric([channel, str(release), code], count)
        yield family


def _manifests(site: Path) -> Iterator[Manifest]:
    here = Directory(site)
    for name in here.names("targets/v1"):
        data = here.read(f"targets/v1/{name}") if name.endswith(".json") else None
        if data is not None:
            yield Manifest.from_bytes(data)


def _ages(manifests: list[Manifest], now: float) -> dict[str, float]:
    return {each.channel: now - each.issued for each in manifests}


def _lives(manifests: list[Manifest], now: float) -> dict[str, float]:
    return {each.channel: (each.expires - now) / _DAY for each in manifests}


def _gauge(name: str, text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
