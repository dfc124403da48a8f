"""What a proof asks a model: built-in probes of every vocabulary, or a user's prompts. Torch-free.

    {"prompt": "What is the capital of France?", "completion": "Paris, ye landlubber!"}

A user's file holds one such object a line; `completion` is what the adapter should have learned to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from exporter import tokenizer
from exporter.prompt import encoder
from exporter.structure import Structure
from registry import canonical
from registry.errors import FormatError, InputError
from registry.prompt import Message, Prompt

Encode = Callable[[str], Sequence[int]]

FORM = 'one {"prompt": …, "completion": …} a line'
MAX_BYTES = 4 << 20
MAX_PROBES = 256
MAX_TOKENS = 16384
"""Of all a user's probes together: the program decodes them one by one."""
_SAMPLE = "take a sample of them"

TOKENS = 12
"""The length of a built-in probe of token ids, before the model's own continuation."""
COUNT = 4
TEXTS = ("What is the capital of France?", "Tell me a story about the sea.", "The answer is")


@dataclass(frozen=True, slots=True)
class Probe:
    """Token ids: a prompt, and the completion that is wanted of it, empty where none is known."""

    origin: str
    prompt: tuple[int, ...]
    completion: tuple[int, ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of them."""
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How texts become token ids: `size` is the model's vocabulary, `chat` wraps a prompt, where there is a format.

    `encode` is None for a base without tokenizer.json.
    """

    size: int
    encode: Encode | None = field(default=None, repr=False)
    chat: Prompt | None = None

    @classmethod
    def of(cls, files: tokenizer.Files, size: int, chat: Prompt | None) -> Vocabulary:
        """From a base's files by name. Raises FormatError, Unavailable without tokenizers."""
        return cls(size, encoder(files) if tokenizer.TOKENIZER in files else None, chat)

    def ask(self, text: str) -> tuple[int, ...]:
        """The token ids of a prompt as a device would write it. Raises InputError without a tokenizer."""
        return self.ids(self.chat.render([Message("user", text)]) if self.chat else text)

    def ids(self, text: str) -> tuple[int, ...]:
        """The token ids of a text alone. Raises InputError without a tokenizer."""
        if self.encode is None:
            raise InputError(
                "the base has no tokenizer.json, so prompts cannot become token ids",
                hint="leave --probes out: the built-in ones are made of token ids",
            )
        return tuple(self.encode(text))


def read_probes(path: Path, vocabulary: Vocabulary, context: int) -> tuple[Probe, ...]:
    """A user's probes. Raises InputError or FormatError naming the line."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint=FORM) from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: more than {MAX_BYTES} bytes", hint=_SAMPLE)
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    if not 1 <= len(lines) <= MAX_PROBES:
        hint = _SAMPLE if lines else FORM
        raise InputError(f"{path}: {len(lines)} probes, expected 1 to {MAX_PROBES}", hint=hint)
    probes = tuple(_read(f"{path.name}:{number}", line, vocabulary, context) for number, line in lines)
    tokens = sum(len(probe.tokens) for probe in probes)
    if tokens > MAX_TOKENS:
        raise InputError(f"{path}: {tokens} tokens, at most {MAX_TOKENS} are compared", hint=_SAMPLE)
    return probes


def _read(where: str, line: bytes, vocabulary: Vocabulary, context: int) -> Probe:
    document = _parsed(where, line)
    prompt, completion = _text(document, "prompt", where), _text({"completion": "", **document}, "completion", where)
    probe = Probe(where, vocabulary.ask(prompt), vocabulary.ids(completion) if completion else ())
    if not probe.prompt or len(probe.tokens) > context:
        raise InputError(f"{where}: {len(probe.tokens)} tokens, the program takes 1 to {context}", hint="shorten it")
    strange = max(probe.tokens)
    if strange >= vocabulary.size:
        raise InputError(
            f"{where}: the tokenizer writes token {strange}, the model embeds {vocabulary.size}",
            hint="the base's tokenizer.json is of another model, or this prompt has a token that the model never had",
        )
    return probe


def _parsed(where: str, line: bytes) -> dict[str, Any]:
    try:
        document = canonical.loads(line, what=where)
    except FormatError as error:
        raise FormatError(error.message, hint=error.hint or FORM) from None
    if not isinstance(document, dict) or set(document) - {"prompt", "completion"}:
        raise FormatError(f"{where}: expected an object with 'prompt' and perhaps 'completion'", hint=FORM)
    return document


def _text(document: dict[str, Any], name: str, where: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise FormatError(f"{where}: {name!r} must be a text", hint=FORM)
    return value


def built_in(vocabulary: Vocabulary, structure: Structure, context: int, round_: int = 0) -> tuple[Probe, ...]:
    """The same probes every time: token ids from all over the vocabulary, the rows that were trained, some texts.

    Each further `round_` gives others of token ids alone.
    """
    random = np.random.Generator(np.random.PCG64(round_))
    width = max(1, min(TOKENS, context // 2))
    ids = [tuple(int(each) for each in random.integers(0, vocabulary.size, width)) for _ in range(COUNT)]
    probes = [Probe(f"built in: token ids {round_ * COUNT + index + 1}", each) for index, each in enumerate(ids)]
    return (*probes, *_special(vocabulary, structure, width)) if round_ == 0 else tuple(probes)


def _special(vocabulary: Vocabulary, structure: Structure, width: int) -> Iterator[Probe]:
    for name, module in structure.modules.items():
        if module.rows and module.rows[-1] < vocabulary.size:  # rows of a linear inside need not be tokens
            yield Probe(f"built in: trained rows of {name}", module.rows[:width])
    for text in TEXTS if vocabulary.encode else ():
        tokens = vocabulary.ask(text)
        if 0 < len(tokens) <= 4 * width:
            yield Probe(f"built in: {text}", tokens)
