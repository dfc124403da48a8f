"""Builds the C++ client against the ExecuTorch that Python runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import executorch

SOURCES = Path(__file__).parents[2] / "examples" / "device-cpp"
EXECUTORCH = Path(next(iter(executorch.__path__))) / "share" / "cmake"


class Unbuildable(Exception):  # noqa: N818 - a statement about the machine
    """A compiler or a library that the machine lacks."""


def build(directory: Path, *, optimized: bool = False) -> Path:
    """Configure and compile; answers the directory of the programs. Raises Unbuildable when something is missing."""
    kind = "Release" if optimized else "Debug"
    options = [f"-DCMAKE_BUILD_TYPE={kind}", f"-Dexecutorch_DIR={EXECUTORCH}", "-DCMAKE_CXX_FLAGS_DEBUG="]
    try:
        configured = _run("cmake", "-S", SOURCES, "-B", directory, *options)
    except FileNotFoundError:
        raise Unbuildable("there is no cmake") from None
    if configured.returncode:
        raise Unbuildable(next(line for line in configured.stdout.splitlines() if line.startswith("CMake Error")))
    compiled = _run("cmake", "--build", directory, "--parallel", "2")
    assert compiled.returncode == 0, compiled.stdout
    return directory


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
