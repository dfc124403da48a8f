"""Replay a release's self-tests before its set becomes active. Imports torch and executorch.

    sync(source, ["stable"], directory, Options(self_test=replay))

A set whose adapters do not answer here as they did where they were published is not activated, and its release is
not taken again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from device.doctor import File
from device.run import Model
from device.sets import title
from device.store import DeviceStore
from registry.device_state import ActiveSet
from registry.errors import IntegrityError
from registry.release import AdapterEntry
from registry.selftest import Probe, SelfTest


def replay(store: DeviceStore, to: ActiveSet, entries: Sequence[AdapterEntry]) -> None:
    """Run the self-tests of these entries of a set; its files are here and were checked.

    Raises IntegrityError for too little agreement, with the figures, and what loading a program raises.
    """
    foundation = File(store.path(to.line.foundation.file.digest), "the foundation", to.line.foundation.file.digest)
    for entry in entries:
        if entry.self_test:
            program = File(store.path(entry.file.digest), title(entry), entry.file.digest)
            test = SelfTest.from_bytes(store.path(entry.self_test.digest).read_bytes())
            _judge(entry, test, sum(agreeing(Model(program, foundation), test)))


def agreeing(model: Model, test: SelfTest) -> Iterator[bool]:
    """For each position of each probe whether the likeliest token is the expected one."""
    for probe in test.probes:
        yield from _agreeing(model, probe)


def _agreeing(model: Model, probe: Probe) -> Iterator[bool]:
    expected = dict(zip(probe.positions, probe.argmax, strict=True))
    for position, logits in enumerate(model.forced(probe.token_ids[: probe.positions[-1] + 1])):
        if position in expected:
            yield int(logits.argmax()) == expected[position]


def _judge(entry: AdapterEntry, test: SelfTest, agreed: int) -> None:
    if agreed < test.agreement * test.positions:
        raise IntegrityError(
            f"{title(entry)} fails its self-test on this device: {agreed} of {test.positions} answers agree,"
            f" {test.agreement:.0%} are needed",
            hint="the set was not activated; tell its publisher which device this is",
            agreed=agreed,
            positions=test.positions,
            reason="self-test",
        )
