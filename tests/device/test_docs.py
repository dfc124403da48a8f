"""docs/devices.md says what the client does: its codes and its numbers are the code's."""

import re
from pathlib import Path

from device.doctor import MEANINGS
from device.result import CODES
from device.sync import STALE

TEXT = (Path(__file__).parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")


def first_column(heading):
    """The words in the first column of the table under a heading."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return {
        word for row in re.findall(r"^\| (?!---)(.*?) \|", section, re.MULTILINE) for word in re.findall(r"[\w-]+", row)
    }


def test_every_code_of_a_failure_is_explained():
    planned = {*STALE, "no-line", "no-room", "digest", "self-test"}
    assert planned | {code for _, code in CODES if code != "input"} == first_column("What a sync answers") - {"code"}


def test_every_number_in_the_docs_is_explained_by_the_client():
    numbers = {int(word, 16) for word in first_column("Loading") if word.startswith("0x")}
    assert numbers == set(MEANINGS) - {0x21, 0x25, 0x31}  # those are about memory


def test_the_files_that_the_docs_name_exist():
    root = Path(__file__).parents[2]
    for name in re.findall(r"`((?:device|registry|tests)/[\w/.]+)`", TEXT):
        assert (root / name).exists(), name
