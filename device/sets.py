"""What a set needs on the device: each thing in one of its forms, and what each is for people.

Most things have one form, a file. An adapter's program has two where the release carries factors: the `.pte`, or the
hollow template, its table and the factors, from which the device writes that `.pte` (device.forms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from device.checks import Damage
from registry.device_state import ActiveSet, ChannelState, DeviceState
from registry.digest import Descriptor
from registry.release import AdapterEntry

Form = tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a set cannot do without, in order of preference of its `forms`; any one of them suffices."""

    what: str
    forms: tuple[Form, ...]

    def damage(self, damage_of: Callable[[Descriptor], Damage | None]) -> Damage | None:
        """None if one form is whole, else what is wrong with the first."""
        first: Damage | None = None
        for form in self.forms:
            found = next((damage for blob in form if (damage := damage_of(blob))), None)
            if found is None:
                return None
            first = first or found
        return first


def needs_of(active: ActiveSet) -> Iterator[Need]:
    """All that a set runs with."""
    line = active.line
    yield Need("the foundation", ((line.foundation.file,),))
    yield Need("the base program", ((line.base,),))
    if line.tokenizer:
        yield Need("the tokenizer", ((line.tokenizer.file,),))
    if line.prompt:
        yield Need("the prompt format", ((line.prompt,),))
    for entry in line.adapters:
        yield Need(title(entry), forms_of(entry))
        if entry.prompt:
            yield Need(f"the prompt format of {entry.name}", ((entry.prompt,),))
        if entry.self_test:
            yield Need(f"the self-test of {entry.name}", ((entry.self_test,),))


def forms_of(entry: AdapterEntry) -> tuple[Form, ...]:
    """The forms of an adapter's program."""
    parts = entry.factors
    written = ((parts.template, parts.table, parts.file),) if parts else ()
    return ((entry.file,), *written)


def title(entry: AdapterEntry) -> str:
    """An adapter for people."""
    return f"adapter {entry.name}@{entry.version}"


def files_of(active: ActiveSet) -> dict[Descriptor, str]:
    """Every file of a set in any form, each once, and what it is; the set's own document too."""
    found = {active.document: "the release document"}
    for need in needs_of(active):
        for form in need.forms:
            for blob in form:
                found.setdefault(blob, need.what)
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
