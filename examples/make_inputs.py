"""Make the example inputs: SmolLM2 as a Hugging Face directory, and three adapters that PEFT trains on it.

    python examples/make_inputs.py [build]

writes `build/smollm2` and `build/adapters/{pirate,json,robot}` without a network, in about a minute on two cores.
What exists is kept; each directory appears whole or not at all.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from voices import VOICES

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "passive",  # threads that spin while they wait starve each other on a busy machine
}


def make(directory: Path, write: Callable[[Path], str]) -> None:
    """Let `write` fill `directory` under another name, then rename it; what exists already is kept.

    `write` answers a note for the person who watches.
    """
    if directory.exists():
        print(f"  {directory} exists", flush=True)
        return
    part = directory.with_name(f".{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    start = time.perf_counter()
    note = write(part)
    part.rename(directory)
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    print(f"  {directory}  {size / 1e6:.1f} MB  {time.perf_counter() - start:.1f} s  {note}", flush=True)


def write_base(part: Path) -> str:
    from smollm2 import write_base  # noqa: PLC0415 - seconds of imports that a second run does without

    write_base(part)
    return "SmolLM2-135M-Instruct"


def write_adapter(build: Path, name: str, part: Path) -> str:
    from train import train  # noqa: PLC0415 - as above

    voice = VOICES[name]
    loss = train(build / "smollm2", part, voice)
    return f"rank {voice.rank}, {len(voice.modules)} modules a layer, {voice.steps} steps, loss {loss:.3f}"


def be_quiet() -> None:
    """Leave out progress bars and the libraries' notices about parts of themselves that are not used here."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", FutureWarning)
    os.environ |= {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def main() -> None:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else "build")
    be_quiet()
    make(build / "smollm2", write_base)
    for name in VOICES:
        make(build / "adapters" / name, partial(write_adapter, build, name))


if __name__ == "__main__":
    main()
