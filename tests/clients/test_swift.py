"""The Swift client agrees with every shared vector, where CryptoKit is: on macOS.

Elsewhere it needs swift-crypto, which has the same API; so it was compiled by Swift 6.0 on Linux, and agreed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import vectors

SOURCES = sorted((Path(__file__).parents[2] / "examples" / "ios").glob("*.swift"))
MAIN = Path(__file__).with_name("Vectors.swift")


@pytest.mark.skipif(
    sys.platform != "darwin" or not shutil.which("swiftc"), reason="needs a Mac's Swift compiler and CryptoKit"
)
def test_the_swift_client_agrees_with_every_shared_vector(tmp_path: Path) -> None:
    program = tmp_path / "vectors"
    compiled = subprocess.run(["swiftc", *SOURCES, MAIN, "-o", program], capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run([program, vectors.FOLDER], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert vectors.passed(done.stdout) >= vectors.cases()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_swift_client_stays_small_enough_to_read(source: Path) -> None:
    lines = source.read_text().splitlines()
    assert len(lines) < 300
    assert max(map(len, lines)) <= 120
