"""SHA-256 of every file of a directory on all processors, and nothing else: what `benchmarks.verify` compares with.

python -m benchmarks.hashing DIRECTORY
"""

from __future__ import annotations

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def digest(path: Path) -> bytes:
    """A file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


if __name__ == "__main__":
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(digest, sorted(Path(sys.argv[1]).iterdir())):
            pass
