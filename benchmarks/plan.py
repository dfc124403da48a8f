"""How long one plan takes: a registry of 10,000 adapters (and of 100,000) in 50 channels, one core.

python -m benchmarks.plan
"""

from __future__ import annotations

import gc
import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from registry.device_state import ActiveSet, ChannelState, DeviceState
from registry.digest import Descriptor, Digest
from registry.manifest import Arm, Manifest, ReleasePin
from registry.plan import plan
from registry.release import AdapterEntry, FoundationEntry, Line, ReleaseDocument, Requires

NOW = 1_780_000_000
CHANNELS = 50
ROUNDS = 300


def pin(text: str, size: int) -> Descriptor:
    """A blob that exists only by name."""
    return Descriptor(Digest(hashlib.sha256(text.encode()).digest()), size)


def release(number: int, channel: int, adapters: int, *, changed: int = 0) -> ReleaseDocument:
    """A release of so many adapters; the first `changed` of them are newer."""
    entries = tuple(
        AdapterEntry(f"a{channel}-{i}", f"1.{int(i < changed)}.0", pin(f"{channel}/{i}/{i < changed}", 2_130_560))
        for i in range(adapters)
    )
    requires = Requires((1, 5), (1, 6), ("XnnpackBackend",), ("llama::custom_sdpa",))
    return ReleaseDocument(
        number, (Line(FoundationEntry(pin("foundation", 538_000_000)), pin("base", 240_000), requires, entries),)
    )


def manifest(channel: int, document: ReleaseDocument, data: bytes) -> Manifest:
    """The channel's manifest, which offers the release to everyone."""
    return Manifest(
        registry="123e4567-e89b-42d3-a456-426614174000",
        channel=f"channel-{channel}",
        sequence=2,
        issued=NOW - 10,
        expires=NOW + 1000,
        poll_seconds=60,
        salt="0" * 32,
        arms=(Arm(document.release, 10_000),),
        releases=(ReleasePin(document.release, Descriptor.of(data)),),
    )


def device(followed: Sequence[tuple[int, ReleaseDocument]]) -> DeviceState:
    """A device that runs the first release of these channels, whole."""
    channels: dict[str, ChannelState] = {}
    holds: dict[Descriptor, None] = {}
    for channel, document in followed:
        active = ActiveSet(document.release, Descriptor.of(document.to_bytes()), document.lines[0])
        channels[f"channel-{channel}"] = ChannelState("123e4567-e89b-42d3-a456-426614174000", 0, 1, NOW - 20, active)
        holds |= document.blobs()
    bare = DeviceState("phone", "1.5.1", backends=("XnnpackBackend",), free_disk=10**12, quota=10**12)
    return replace(bare, holds=tuple(holds), channels=channels)


def measured(manifests: list[Manifest], releases: dict[Digest, ReleaseDocument], state: DeviceState) -> list[float]:
    """Milliseconds of each of many plans."""
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        plan(manifests, releases, state, now=NOW)
        taken.append((time.perf_counter() - start) * 1000)
    return sorted(taken)


def main() -> None:
    """Print the table."""
    print(f"{'registry':>9} {'follows':>20} {'device':>12} {'p50 ms':>8} {'p99 ms':>8}")
    for total, sizes in ((10_000, (1, 5, CHANNELS)), (100_000, (1, 5))):
        each = total // CHANNELS if total == 10_000 else 200  # further adapters are in other channels and releases
        old = [release(1, channel, each) for channel in range(CHANNELS)]
        new = [release(2, channel, each, changed=2) for channel in range(CHANNELS)]
        rest = [release(3, 1000 + n, each) for n in range((total - 10_000) // each)]
        for count in sizes:
            data = {n: document.to_bytes() for n, document in enumerate(new[:count])}
            manifests = [manifest(n, new[n], data[n]) for n in range(count)]
            releases = {Descriptor.of(document.to_bytes()).digest: document for document in [*new, *rest]}
            states = {
                "fresh": device([]),
                "up to date": device(list(enumerate(new[:count]))),
                "one release behind": device(list(enumerate(old[:count]))),
            }
            gc.collect()
            for name, state in states.items():
                taken = measured(manifests, releases, state)
                p50, p99 = statistics.median(taken), taken[int(len(taken) * 0.99)]
                print(f"{total:>9} {count:>3} x {each:>4} adapters {name:>20} {p50:>8.2f} {p99:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
