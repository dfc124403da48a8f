"""What a set needs on the device: the files of one installed line, and what each is for people."""

from __future__ import annotations

from dataclasses import replace

from registry.device_state import ActiveSet, ChannelState, DeviceState
from registry.digest import Descriptor


def files_of(active: ActiveSet) -> dict[Descriptor, str]:
    """Every blob that a set runs with, each once, and what it is."""
    line = active.line
    named: list[tuple[Descriptor | None, str]] = [
        (line.foundation.file, "the foundation"),
        (line.base, "the base program"),
        (line.tokenizer.file if line.tokenizer else None, "the tokenizer"),
        (line.prompt, "the prompt format"),
    ]
    for entry in line.adapters:
        named += [(entry.file, f"adapter {entry.name}@{entry.version}")]
        named += [(entry.prompt, f"the prompt format of {entry.name}")]
        named += [(entry.self_test, f"the self-test of {entry.name}")]
    found: dict[Descriptor, str] = {}
    for blob, what in named:
        if blob is not None:
            found.setdefault(blob, what)
    return found


def kept_sets(channel: ChannelState) -> list[ActiveSet]:
    """The sets whose files stay: the active one, then the one before it."""
    return [each for each in (channel.active, channel.previous) if each]


def active_sets(state: DeviceState) -> dict[str, ActiveSet]:
    """The active set of each channel that has one."""
    return {name: channel.active for name, channel in state.channels.items() if channel.active}


def with_channel(state: DeviceState, name: str, channel: ChannelState) -> DeviceState:
    """The device with one channel's state set."""
    return replace(state, channels={**state.channels, name: channel})
