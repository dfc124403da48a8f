"""The command line: `ptdock`, its nouns, and the one place from which it exits.

    ptdock --home DIR NOUN VERB …      one module of console.commands per noun, loaded when it is named

A verb parses, makes one call and answers: for people on standard output, or with --json as one document.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from console import failures
from console.app import App
from console.verbs import Lazy, common_options
from registry.errors import PtdockError

_HOME = Path("~/.ptdock")
_AT = "console.commands."

SECTIONS = {
    "Make": {
        "init": (f"{_AT}store", "init", "Make a store, or bring one to this version's schema."),
        "base": (f"{_AT}base", "base", "Checkpoints that foundations are made from."),
        "foundation": (f"{_AT}foundation", "foundation", "One .ptd for a base and all of its adapters."),
        "template": (f"{_AT}template", "template", "Hollow programs, one for each structure of adapters."),
        "adapter": (f"{_AT}adapter", "adapter", "Check, publish, show and withdraw adapters."),
    },
    "Ship": {
        "channel": (f"{_AT}channel", "channel", "What devices follow."),
        "release": (f"{_AT}release", "release", "Immutable, numbered sets of builds that channels offer."),
        "manifest": (f"{_AT}query", "manifest", "Print a channel's manifest, as devices read it."),
        "plan": (f"{_AT}query", "plan", "Show what one device would do, and why."),
        "site": (f"{_AT}site", "site", "The signed static tree, for any web server or bucket."),
        "keys": (f"{_AT}keys", "keys", "Who signs what devices read, and until when."),
        "serve": ("server.commands", "serve", "Serve what channels offer, and answer questions about it."),
        "token": ("server.token_commands", "token", "Who may change this store over HTTP."),
        "device": (f"{_AT}device", "device", "The reference device client: a directory plays the phone."),
    },
    "Care": {
        "verify": (f"{_AT}store", "verify", "Check every blob against its digest, and every link."),
        "repair": (f"{_AT}care", "repair", "Make lost and damaged files again, from what is left."),
        "gc": (f"{_AT}collect", "gc", "Delete what nothing needs any more."),
        "save": (f"{_AT}archive", "save", "Write adapters and all they need into one file."),
        "load": (f"{_AT}archive", "load", "Take such a file in, whole or not at all; twice is once."),
        "trace": (f"{_AT}trace", "trace", "Say what a digest, a version or a file is, and who was offered it."),
        "log": (f"{_AT}store", "log", "Show who changed what, and when, newest first."),
        "db": (f"{_AT}database", "db", "The database: upgrade its schema, check it, copy it."),
    },
}


class Root(Lazy):
    """The top group, which turns whatever comes out of a command into an exit code."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run one command line and exit. `args` are by default the process's own."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character gets its number
                stream.reconfigure(errors="backslashreplace")
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
        sys.exit(self._run(words, as_json=as_json, **{**extra, "prog_name": "ptdock", "standalone_mode": False}))

    def _run(self, words: list[str], *, as_json: bool, **extra: Any) -> int:
        try:
            code = super().main(words, **extra)
        except PtdockError as error:
            return failures.report(error, as_json=as_json)
        except click.Abort:
            return failures.report_interrupt(as_json=as_json)
        except click.ClickException as error:
            return failures.report_usage(error, as_json=as_json)
        except (OSError, ModuleNotFoundError, UnicodeEncodeError) as error:
            known = failures.translated(error)
            if known is None:
                raise
            return failures.report(known, as_json=as_json)
        return code if isinstance(code, int) else 0


def _print_version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from importlib import metadata  # noqa: PLC0415 - as slow as all the rest of --help

        try:
            click.echo(f"ptdock {metadata.version('ptdock')}")
        except metadata.PackageNotFoundError:
            click.echo("ptdock (not installed)")
        context.exit()


@click.group(
    cls=Root, sections=SECTIONS, params=common_options(), context_settings={"help_option_names": ["--help", "-h"]}
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="PTDOCK_HOME",
    default=_HOME,
    show_default=True,
    show_envvar=True,
    metavar="DIR",
    help="The store.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Say which.")
@click.pass_context
def cli(context: click.Context, home: Path) -> None:
    """One foundation, many adapters: packaging and registry for PyTorch ExecuTorch."""
    app = context.ensure_object(App)
    app.home = home.expanduser()
    context.call_on_close(app.close)


def main() -> None:
    """The `ptdock` script."""
    cli()


if __name__ == "__main__":
    main()
