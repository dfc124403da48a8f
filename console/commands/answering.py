"""`ptdock device run` and `device swap`: installed adapters answer, in ExecuTorch's runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import render
from console.app import App, pass_app
from console.options import COUNT, FC, WholeNumber, directory_option
from console.verbs import Verb

if TYPE_CHECKING:
    from device.run import Answer, Chat, Chooser


_SHARE = click.FloatRange(0, 1, min_open=True)


def _answer_options(command: FC) -> FC:
    """How to answer: where, how long, and how to choose the next token."""
    options = (
        directory_option("The device's directory."),
        click.option("--channel", help="Which channel's adapter, where several have one of that name."),
        click.option("--max-new-tokens", type=COUNT, default=128, show_default=True, help="When to stop."),
        click.option("--temperature", type=click.FloatRange(0), help="Draw, from flatter shares the higher it is."),
        click.option("--top-k", type=COUNT, help="Draw from so many of the likeliest tokens."),
        click.option("--top-p", type=_SHARE, help="Draw from the likeliest tokens of this share."),
        click.option("--seed", type=WholeNumber(0), help="Draw the same again."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=Verb)
@click.argument("adapter")
@click.argument("prompt")
@_answer_options
@pass_app
def run(app: App, /, adapter: str, prompt: str, directory: Path, channel: str | None, **how: Any) -> None:
    """Let an adapter answer a prompt, in ExecuTorch's runtime.

    ADAPTER - is the base without an adapter. The likeliest token is taken each time, unless one of the drawing
    options is given: then what the others leave open is as the adapter's prompt format says.
    """
    app.answer(_said(app, directory, adapter, channel, prompt, how), "")


@click.command(cls=Verb)
@click.argument("adapters", nargs=-1, required=True, metavar="ADAPTER...")
@click.argument("prompt")
@_answer_options
@pass_app
def swap(app: App, /, adapters: tuple[str, ...], prompt: str, directory: Path, channel: str | None, **how: Any) -> None:
    """Let one adapter after another answer the same prompt, in one process.

    The foundation's file stays mapped; each swap loads a program, and begins with an empty context. ADAPTER - is the
    base without an adapter.
    """
    app.answer([_said(app, directory, adapter, channel, prompt, how) for adapter in adapters], "")


def _said(
    app: App, directory: Path, adapter: str, channel: str | None, prompt: str, how: dict[str, Any]
) -> dict[str, Any]:
    """Load an adapter and let it answer, printed as it comes; answers the document."""
    from device.health import watched
    from device.installed import locate

    name = None if adapter == "-" else adapter
    with watched(directory, locate(directory, name, channel)):  # before torch is imported, which takes seconds
        chat = _load(app, directory, name, channel)
        return _answered(app, chat, prompt, how)


def _answered(app: App, chat: Chat, prompt: str, how: dict[str, Any]) -> dict[str, Any]:
    chooser = _chooser(chat, how["temperature"], how["top_k"], how["top_p"], how["seed"])
    answer = chat.answer(prompt, max_new_tokens=how["max_new_tokens"], on_token=_speak(app), choose=chooser)
    if not app.json:
        click.echo()
    app.note(render.dim(_answer_note(chat, answer)))
    return _answer_document(chat, answer)


def _chooser(
    chat: Chat, temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None
) -> Chooser:
    """Greedy when nothing is asked for; else what is asked, and for the rest what the release's prompt says."""
    import secrets

    from device.run import Sampler, greedy
    from registry.prompt import Sampling

    if temperature is None and top_k is None and top_p is None and seed is None:
        return greedy
    usual = chat.installed.prompt.sampling if chat.installed.prompt else None
    usual = usual or Sampling(1.0)
    sampling = Sampling(
        temperature=(usual.temperature or 1.0) if temperature is None else temperature,
        top_p=usual.top_p if top_p is None else top_p,
        top_k=usual.top_k if top_k is None else top_k,
    )
    return Sampler.seeded(sampling, secrets.randbelow(1 << 63) if seed is None else seed)


def _load(app: App, directory: Path, adapter: str | None, channel: str | None) -> Chat:
    from exporter.quiet import quiet

    with app.progress() as progress:
        progress("loading")
        with quiet():
            from device.run import Chat

            return Chat.open(directory, adapter, channel)


def _speak(app: App) -> Any:
    """Prints the answer as it comes, unless one document is asked for."""
    return None if app.json else lambda text: click.echo(text, nl=False)


def _answer_document(chat: Chat, answer: Answer) -> dict[str, Any]:
    return {
        "adapter": chat.installed.adapter,
        "version": chat.installed.version,
        "channel": chat.installed.channel,
        "release": chat.installed.release,
        "program": str(chat.installed.program.digest),
        "foundation": str(chat.installed.foundation.digest),
        "text": answer.text,
        "tokens": list(answer.tokens),
        "prompt_tokens": answer.prompt_tokens,
        "load_seconds": chat.load_seconds,
        "prefill_seconds": answer.prefill_seconds,
        "decode_seconds": answer.decode_seconds,
    }


def _answer_note(chat: Chat, answer: Answer) -> str:
    who = f"{chat.installed.adapter}@{chat.installed.version}" if chat.installed.adapter else "the base program"
    later = len(answer.tokens) - 1  # the first one belongs to the prefill
    rate = f", then {later / answer.decode_seconds:.1f} tokens/s" if later > 0 and answer.decode_seconds else ""
    return f"{who}, loaded in {render.seconds(chat.load_seconds)}, {len(answer.tokens)} tokens{rate}"
