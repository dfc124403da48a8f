"""The Kotlin client compiles, and agrees with every shared vector on a Java runtime."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients import vectors

SOURCES = sorted((Path(__file__).parents[2] / "examples" / "android").glob("*.kt"))
MAIN = Path(__file__).with_name("Vectors.kt")


@pytest.mark.skipif(not shutil.which("kotlinc"), reason="there is no Kotlin compiler (Debian's package kotlin)")
def test_the_kotlin_client_agrees_with_every_shared_vector(tmp_path: Path) -> None:
    jar = tmp_path / "vectors.jar"
    compiled = subprocess.run(
        ["kotlinc", *SOURCES, MAIN, "-include-runtime", "-d", jar], capture_output=True, text=True, check=False
    )
    assert compiled.returncode == 0, compiled.stderr
    assert "warning:" not in compiled.stderr.replace("VM warning:", "")
    command = ["java", "-cp", jar, "ptdock.Vectors", vectors.FOLDER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert vectors.passed(done.stdout) >= vectors.cases()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_kotlin_client_stays_small_enough_to_read(source: Path) -> None:
    lines = source.read_text().splitlines()
    assert len(lines) < 300
    assert max(map(len, lines)) <= 120
