"""What the README says is so: its commands parse, its help is the help, and the demo runs what it tells."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
COMMANDS = [line[2:] for block in BLOCKS for line in block.splitlines() if line.startswith("$ ptdock ")]


def ask(*words: str) -> str:
    """What a command line prints in 80 columns. With --help among the words it is parsed, but not run."""
    result = CliRunner().invoke(cli.cli, words, prog_name="ptdock", terminal_width=78)  # click leaves two
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_every_command_in_the_readme_exists_with_its_options(command):
    ask(*shlex.split(command)[1:], "--help")


def test_a_command_that_does_not_exist_would_be_noticed():
    with pytest.raises(AssertionError):
        ask("adapter", "publish", "--no-such-option", "--help")


def test_the_readme_shows_the_help_as_it_is():
    shown = next(block for block in BLOCKS if block.startswith("$ ptdock --help\n"))
    assert shown == f"$ ptdock --help\n{ask('--help')}"


def test_the_readme_tells_what_the_demo_runs_in_the_same_order(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    sys.modules.pop("chain", None)
    from chain import CHAIN

    told = [command for command in COMMANDS if command != "ptdock --help"]
    assert told == [step.command for step in CHAIN if step.command.startswith("ptdock ")]


def test_every_make_target_that_the_docs_name_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documents = [ROOT / "README.md", *(ROOT / "benchmarks").glob("*.*"), *(ROOT / "examples").glob("*.py")]
    named = {
        target for file in documents for target in re.findall(r"^ *`?make ([a-z-]+)", file.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "bench"} <= named <= targets
