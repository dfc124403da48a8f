"""Imports run one way, and what needs no torch does not pay for it.

The rules are read from the source, function bodies included; that they hold when commands run is seen from outside, by
what a process has loaded when it ends.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    "registry": {"migrations"},  # database.py finds the scripts; they import its tables back
    "migrations": {"registry"},
    "exporter": {"registry"},
    "device": {"registry"},
    "console": {"registry", "exporter", "device"},
    "server": {"registry", "exporter", "console"},
    "cli": {"registry", "console"},
}
TORCH = {"torch", "torchao", "executorch", "transformers", "peft"}
TORCH_MODULES = {
    "exporter.decoder",
    "exporter.lora",
    "exporter.lower",
    "exporter.quantize",
    "exporter.perplexity",
    "exporter.decoder_export",
    "exporter.export",
    "exporter.module_export",
    "exporter.module_probes",
    "exporter.module_proof",
    "exporter.module_table",
    "exporter.module_weights",
    "exporter.figures",
    "exporter.text_proof",
    "exporter.reference",
    "exporter.session",
    "exporter.peft.pickled",
    "device.run",
}
SLOW = TORCH | {"alembic"}


def name_of(file: Path) -> str:
    """The module's name: exporter/peft/gate.py is exporter.peft.gate."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> dict[str, Path]:
    """Our modules by name."""
    files = [ROOT / "cli.py", *(file for top in MAY_IMPORT for file in (ROOT / top).rglob("*.py"))]
    return {name_of(file): file for file in files}


def imported(file: Path) -> Iterator[str]:
    """What a module imports, anywhere in it: the dotted names."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def tops(file: Path) -> set[str]:
    """The top-level packages that a module imports."""
    return {name.partition(".")[0] for name in imported(file)}


def test_packages_import_only_what_lies_below_them():
    wrong = {
        name: beyond
        for name, file in sources().items()
        for top in [name.partition(".")[0]]
        if (beyond := (tops(file) & MAY_IMPORT.keys()) - {top} - MAY_IMPORT[top])
    }
    assert wrong == {}


def test_torch_is_imported_by_the_named_modules_only():
    wrong = {name for name, file in sources().items() if tops(file) & TORCH} - TORCH_MODULES
    assert wrong == set()


def test_sqlalchemy_stays_inside_the_registry():
    wrong = {name for name, file in sources().items() if "sqlalchemy" in tops(file)}
    assert {name.partition(".")[0] for name in wrong} == {"registry", "migrations"}


def test_released_migrations_import_no_live_code():
    versions = (ROOT / "migrations" / "versions").glob("*.py")
    assert set.union(*map(tops, versions)) & MAY_IMPORT.keys() == set()


def write_adapter(directory: Path, seed: int) -> None:
    """A rank-4 adapter on the tiny base's q_proj, random."""
    directory.mkdir()
    random = np.random.default_rng(seed)
    shapes = {"lora_A": (4, 32), "lora_B": (32, 4)}
    tensors = {
        f"base_model.model.model.layers.{layer}.self_attn.q_proj.{part}.weight": random.normal(size=shape)
        for layer in (0, 1)
        for part, shape in shapes.items()
    }
    save_file(
        {name: value.astype("float32") for name, value in tensors.items()}, directory / "adapter_model.safetensors"
    )
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (directory / "adapter_config.json").write_text(json.dumps(config))


def run(home: Path, *arguments: object) -> set[str]:
    """Run one command line in its own process; the slow packages that it had loaded when it ended."""
    program = "import sys, cli\ntry: cli.main()\nfinally: print('loaded', *sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", program, "--home", str(home), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()} & SLOW


@pytest.fixture(scope="session")
def offered(made_once, tiny_base) -> Path:
    """A store that offers one adapter, in `home`; beside it two adapters of one structure, and a phone's facts."""

    def make(directory: Path) -> None:
        home, chosen = directory / "home", ("--foundation", "tiny", "--base", tiny_base)
        write_adapter(directory / "first", seed=1)
        write_adapter(directory / "second", seed=2)
        (directory / "phone.json").write_text('{"schema": 1, "id": "phone-1"}')
        run(home, "init")
        loaded = run(home, "foundation", "export", tiny_base, "--name", "tiny", "--context", "64")
        assert {"torch", "executorch"} <= loaded, "this way of looking would see nothing"
        run(home, "adapter", "publish", directory / "first", "--name", "first", "--version", "1.0.0", *chosen)
        run(home, "channel", "create", "stable")
        run(home, "release", "create", "--channel", "stable", "--adapter", "first@1.0.0")

    return made_once("offered", make)


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "adapter check {at}/second --foundation tiny",
        "adapter publish {at}/second --foundation tiny --name second --version 1.0.0",
        "adapter list",
        "manifest stable",
        "plan stable --device {at}/phone.json",
        "device sync stable --dir {at}/phone",
        "verify",
    ],
)
def test_what_needs_no_torch_loads_neither_torch_nor_alembic(offered, words):
    assert run(offered / "home", *words.format(at=offered).split()) == set()
