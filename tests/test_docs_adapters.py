"""docs/adapters.md is so: its commands parse, its tests exist, and its tables name what the gate knows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import cli
from exporter.peft.config import REFUSED
from registry.lineage import KEYS

ROOT = Path(__file__).resolve().parent
TEXT = (ROOT.parent / "docs" / "adapters.md").read_text()
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE) for line in
            block.splitlines()]  # fmt: skip
TESTS = re.findall(r"([\w/]+\.py)::(test_\w+)", TEXT)


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_every_command_parses(command: str) -> None:
    words = [*shlex.split(command)[1:], "--help"]
    assert CliRunner().invoke(cli, words).exit_code == 0


def test_every_test_that_is_named_exists() -> None:
    assert len(TESTS) > 40
    for file, name in TESTS:
        path = ROOT / file.replace("peft/", "exporter/peft/", 1) if file.startswith("peft/") else ROOT / file
        assert f"def {name}(" in path.read_text(), f"{file}::{name}"


def test_every_lineage_key_is_described() -> None:
    assert re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)[-len(KEYS) :] == list(KEYS)


def test_every_field_that_is_refused_has_its_method_named() -> None:
    words = {
        "loftq_config": "LoftQ",
        "alora_invocation_tokens": "aLoRA",
        "use_qalora": "QALoRA",
        "kasa_config": "KaSA",
        "use_bdlora": "BD-LoRA",
        "monteclora_config": "MonteCLoRA",
        "arrow_config": "Arrow",
        "megatron_config": "Megatron",
    }
    assert all(words.get(field, field) in TEXT for field in REFUSED)
