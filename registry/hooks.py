"""The hook `on_release`: one local command that runs after a channel begins to offer a release.

It gets the release's JSON on standard input; what it says and how it ends is shown, and never undoes the release. The
commands stand in `hooks.json` of the home, not in the database, so that neither a shared database nor an archive can
bring a command to another machine. No shell: words are split as a shell would, once, when the hook is set.

    Hooks(home).set("stable", "notify --team mobile")
    Hooks(home).run("stable", document)        # Outcome(code=0, output="…"), None without a hook
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry import canonical, files
from registry.documents import SCHEMA, opened
from registry.errors import FormatError, InputError, IntegrityError

_SECONDS = 300
_SHOWN = 4000  # characters of output that are kept: the last ones


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a hook ended: its exit code, None when it could not be started or took too long, and its last words."""

    command: tuple[str, ...]
    code: int | None
    output: str

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.code == 0

    def to_json(self) -> dict[str, Any]:
        """As it stands in a command's answer."""
        return {"command": list(self.command), "code": self.code, "output": self.output}


class Hooks:
    """The hooks of a home."""

    def __init__(self, home: Path) -> None:
        self._path = home / "hooks.json"

    def get(self, channel: str) -> tuple[str, ...]:
        """The words of a channel's command; empty without one."""
        return self._commands().get(channel, ())

    def set(self, channel: str, command: str) -> None:
        """Let a channel run a command; an empty one removes it. Raises InputError for quotes that do not close."""
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise InputError(f"{command!r} is not a command: {error}", hint="close every quote") from error
        commands = {**self._commands(), channel: words}
        table = {name: list(each) for name, each in sorted(commands.items()) if each}
        files.replace(self._path, canonical.dumps({"schema": SCHEMA, "critical": [], "on_release": table}))

    def forget(self, channel: str) -> None:
        """Let a channel, and whatever has its name later, run nothing."""
        if self.get(channel):
            self.set(channel, "")

    def run(self, channel: str, document: Mapping[str, Any]) -> Outcome | None:
        """Run a channel's command with a document on its standard input; None when it has none. Never raises."""
        words = self.get(channel)
        if not words:
            return None
        import subprocess  # noqa: PLC0415 - only where there is a hook

        try:
            done = subprocess.run(
                words,
                input=canonical.dumps(document),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(words, None, f"still running after {_SECONDS} seconds: stopped")
        except OSError as error:
            return Outcome(words, None, f"{words[0]}: {error.strerror}")
        return Outcome(words, done.returncode, done.stdout.decode(errors="replace")[-_SHOWN:].strip())

    def _commands(self) -> dict[str, tuple[str, ...]]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        known = "schema critical on_release"
        try:
            fields = opened(data, what="hooks.json", known=known, limit=1 << 20).object("on_release")
            return {channel: tuple(map(str, fields.items(channel))) for channel in fields.keys()}  # noqa: SIM118 - not a dict
        except FormatError as error:
            raise IntegrityError(
                f"{self._path} is damaged: {error.message}",
                hint="delete that one file, and set the hooks again: channel set NAME --on-release COMMAND",
            ) from error
