"""A channel's arms, and what its rollout came to, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from console import render
from console.app import App
from registry.artifacts import Channel, ReleaseResult
from registry.manifest import WHOLE, Arm
from registry.rollout import percent


def name_of(arm: Arm) -> str:
    """`release 12`, `release 12 (halted)`, `held out` or `as they are`."""
    if arm.release is None:
        return "held out" if arm.holdout else "as they are"
    return f"release {arm.release}" + (" (halted)" if arm.state == "halted" else "")


def line(arms: Sequence[Arm]) -> str:
    """The arms in one line."""
    return ", ".join(f"{name_of(arm)} {percent(arm.share_bp)}" for arm in arms)


def bars(arms: Sequence[Arm], beside: Callable[[Arm], str] = lambda _: "") -> str:
    """The arms as bars, in the order in which devices are assigned to them; `beside` adds a remark to each."""
    width = max(len(name_of(arm)) for arm in arms)
    lines = []
    for arm in arms:
        style = render.doubtful if arm.state == "halted" else render.good if arm.release else render.dim
        bar = style(render.bar(arm.share_bp / WHOLE))
        remark = beside(arm)
        text = f"{name_of(arm).ljust(width)}  {bar}  {percent(arm.share_bp):>7}"
        lines.append(f"{text}  {render.dim(remark)}" if remark else text)
    return "\n".join(lines)


def rolled(result: ReleaseResult) -> str:
    """What a verb of a rollout did."""
    channel = result.channel
    what = "nothing to do" if result.manifest is None else f"sequence {channel.sequence}"
    return f"{head(channel)}  {what}\n{bars(channel.arms)}"


def head(channel: Channel) -> str:
    """The channel's name."""
    return render.bold(channel.name)


def remarks(app: App, result: ReleaseResult) -> None:
    """What is doubtful in a release, and how the hook ended, on standard error."""
    for warning in result.warnings:
        app.note(f"{render.doubtful('warning')}: {render.clean(warning)}")
    hook = result.hook
    if hook and hook.ok:
        app.note(f"{render.dim('on_release')}: done")
    elif hook:
        ended = "did not run" if hook.code is None else f"ended with {hook.code}"
        said = f": {render.clean(hook.output)}" if hook.output else ""
        app.note(f"{render.bad('on_release')} {ended}{said}; the release stays")
