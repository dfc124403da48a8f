"""Put the real output of the demo's last run, and of `ptdock --help`, behind their commands in README.md.

make demo readme
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from chain import CHAIN
from demo import ENVIRONMENT, JOURNAL

README = Path(__file__).resolve().parent.parent / "README.md"
WIDTH = 118


def filled(text: str, output: Callable[[str], str | None]) -> str:
    """`text` with the commands of its fenced blocks followed by what `output` answers for them, from top to bottom.

    Where it answers None, the block's own text stays.
    """

    def block(match: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", match[2], re.MULTILINE)
        said = [(command, output(command), old) for command, old in commands]
        body = "".join(f"$ {command}\n{old if new is None else shortened(new)}" for command, new, old in said)
        return f"{match[1]}{body}{match[3]}"

    return re.sub(r"(^```\n)(\$ .*?)(^```$)", block, text, flags=re.MULTILINE | re.DOTALL)


def shortened(output: str) -> str:
    """Lines of a readable length; what is cut is marked."""
    lines = [line.rstrip() for line in output.splitlines()]
    return "".join(f"{line if len(line) <= WIDTH else line[: WIDTH - 2] + ' …'}\n" for line in lines)


def main() -> None:
    journal = json.loads(JOURNAL.read_text())
    steps = iter(step for step in CHAIN if step.command.startswith("ptdock "))

    def output(command: str) -> str | None:
        if command == "ptdock --help":
            return subprocess.check_output(command.split(), env=ENVIRONMENT | {"COLUMNS": "80"}, text=True)
        said: str = journal[next(step.key for step in steps if step.command == command)]["output"]
        return said

    README.write_text(filled(README.read_text(), output))


if __name__ == "__main__":
    main()
