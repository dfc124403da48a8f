"""What a foundation update costs a device: bytes from the source, seconds, peak memory.

python -m benchmarks.device [MEGABYTES]

A foundation of 274 tensors of which 14 change, as between two fine-tunes of one architecture. Each sync is a process
of its own; its source is a directory, so the seconds are the device's.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.measure import run
from registry.digest import Descriptor
from registry.manifest import Arm, Manifest, ReleasePin
from registry.release import FoundationEntry, Line, ReleaseDocument, Requires
from registry.segments import SegmentTable
from registry.site import blob_path, manifest_path
from tests.registry.files import foundation_bytes

TENSORS, CHANGED = 274, 14
# The kernel's count for a child starts with its parent's peak; VmHWM is the process's own.
SYNC = """
import re, sys
from pathlib import Path
from device.source import DirectorySource
from device.sync import sync
fetched = sync(DirectorySource(Path(sys.argv[1])), ["stable"], Path(sys.argv[2])).fetched
print(fetched, re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def tensors(size: int, *, changed: bool) -> dict[str, bytes]:
    """Tensors of `size` bytes in all, like a model's: a big one, the embedding, and many smaller ones."""
    random = np.random.default_rng(1)
    embedding = size // 5
    sizes = [embedding] + [(size - embedding) // (TENSORS - 1)] * (TENSORS - 1)
    made = {f"t{index}": random.bytes(length) for index, length in enumerate(sizes)}
    for index in range(1, CHANGED + 1) if changed else ():
        made[f"t{index * TENSORS // (CHANGED + 2)}"] = random.bytes(sizes[1])
    return made


def offer(site: Path, number: int, content: Mapping[str, bytes]) -> int:
    """Publish a release of this foundation into a static tree; answers the foundation's size."""
    data = foundation_bytes(dict(content))
    foundation = put(site, data)
    segments = put(site, SegmentTable.of_file(site / blob_path(foundation.digest)).to_bytes())
    line = Line(FoundationEntry(foundation, segments), put(site, b"base"), Requires((1, 5), (1, 6)), ())
    document = put(site, ReleaseDocument(number, (line,)).to_bytes())
    now = int(time.time())
    manifest = Manifest(
        registry="123e4567-e89b-42d3-a456-426614174000",
        channel="stable",
        sequence=number,
        issued=now,
        expires=now + 86_400,
        poll_seconds=60,
        salt="0" * 32,
        arms=(Arm(number, 10_000),),
        releases=(ReleasePin(number, document),),
    )
    write(site / manifest_path("stable"), manifest.to_bytes())
    return foundation.size


def put(site: Path, data: bytes) -> Descriptor:
    """Make bytes a blob of the tree."""
    blob = Descriptor.of(data)
    write(site / blob_path(blob.digest), data)
    return blob


def write(path: Path, data: bytes) -> None:
    """Write a file whose folder may not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def measured(title: str, folder: Path, size: int) -> None:
    """Sync once and print a row."""
    log = folder / "log"
    cost = run([sys.executable, "-c", SYNC, folder / "site", folder / "phone"], log=log)
    fetched, peak = (int(word) for word in log.read_text().split())
    share = f"{100 * fetched / size:.1f} %"
    print(f"{title:28} {fetched / 1e6:8.1f} MB {share:>8} {cost.seconds:6.2f} s {peak * 1024 / 1e6:6.0f} MB peak")


def main() -> None:
    """Print the table."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 256) * 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="ptdock-bench-"))
    try:
        whole = offer(folder / "site", 1, tensors(size, changed=False))
        measured("foundation, first", folder, whole)
        measured("foundation, unchanged", folder, whole)
        offer(folder / "site", 2, tensors(size, changed=True))
        measured(f"foundation, {CHANGED} of {TENSORS} changed", folder, whole)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
