"""The classes of commands: every verb takes --json and --quiet, and nouns are loaded when they are named."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from console.app import App


def _set_json(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(App).json = True


def _set_quiet(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(App).quiet = True


def common_options() -> list[click.Parameter]:
    """What every verb takes."""
    return [
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_set_json,
            help="One JSON document on standard output.",
        ),
        click.Option(
            ["--quiet", "-q"], is_flag=True, expose_value=False, callback=_set_quiet, help="No progress, no notes."
        ),
    ]


class Verb(click.Command):
    """A command that does something."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += common_options()


class Noun(click.Group):
    """A group of verbs. Its help gives the first line of each verb's own, whole: click would cut it to fit."""

    command_class = Verb

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with one line each."""
        verbs = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        rows = [(name, (verb.help or "").partition("\n")[0]) for name, verb in verbs if verb and not verb.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Lazy(Noun):
    """A group whose members are imported when they are named.

    `sections` maps a heading to members, and each member's name to (module, attribute, one line of help), so that
    the group's own help imports none of them.
    """

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Mapping[str, tuple[str, str, str]]] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.sections = sections or {}

    def list_commands(self, _context: click.Context) -> list[str]:
        """The members in the order of the sections."""
        return [name for members in self.sections.values() for name in members]

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Import and answer a member; None for a name that is none."""
        for members in self.sections.values():
            if name in members:
                module, attribute, _ = members[name]
                command: click.Command = getattr(import_module(module), attribute)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, which knows only members that are loaded: a name that is none gets those nearest to it."""
        near = [] if args[0] in self.list_commands(ctx) else get_close_matches(args[0], self.list_commands(ctx), n=1)
        if near:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """The sections with one line for each member."""
        for heading, members in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, _, line) in members.items()])
