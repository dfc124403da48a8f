"""What docs/releases.md and docs/signing.md say is so: commands parse, the formula gives the vectors."""

import hashlib
import json
import re
import shlex
from pathlib import Path

import pytest

from registry.budget import Fleet
from tests.test_docs import ask

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "releases.md").read_text()
VECTORS = json.loads((ROOT / "tests" / "vectors" / "bucket.json").read_text())


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


SIGNING = re.findall(r"^ptdock .*$", (ROOT / "docs" / "signing.md").read_text(), re.MULTILINE)
COMMANDS = [*(line for block in blocks("sh") for line in block.splitlines()), *SIGNING]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_with_its_options(command):
    ask(*shlex.split(command)[1:], "--help")


def test_the_formula_of_the_docs_gives_the_shared_vectors():
    (formula,) = blocks("python")
    known = {"hashlib": hashlib}
    exec(formula, known)  # noqa: S102 - the three lines that the docs show
    assert len(VECTORS["buckets"]) > 3
    for vector in VECTORS["buckets"]:
        assert known["bucket"](vector["salt"], vector["device"]) == vector["bucket"]


def test_the_fleet_of_the_docs_is_one():
    (fleet,) = blocks("json")
    assert sum(cohort.count for cohort in Fleet.from_bytes(fleet.encode()).cohorts) == 123_000


def test_verbs_that_are_named_in_the_text_exist():
    named = set(re.findall(r"`(?:ptdock )?((?:release|channel|keys|adapter|site) [a-z]+)", TEXT))
    assert {"release rollback", "keys refresh", "channel advance", "adapter revoke"} <= named
    for verb in sorted(named):
        ask(*verb.split(), "--help")
