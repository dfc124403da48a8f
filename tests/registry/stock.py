"""A registry with something in it: real programs and foundations, small enough to make in milliseconds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from registry import files
from registry.artifacts import Base, Foundation, PublishResult, Runtime, Source, Template
from registry.digest import Digest
from registry.formats.ptd import read_ptd
from registry.formats.pte import read_pte
from registry.links import foundation_tensors
from registry.relink import hollow, pack, relink
from registry.relocation import RelocationTable, Slot
from registry.service import Registry
from tests.registry.files import Pair

RUNTIME = Runtime((1, 5), (1, 6), ("XnnpackBackend",), ())
NOW = 1_780_000_000


def structure(rank: int) -> dict[str, object]:
    """The structure document of one LoRA module; rank 0 is the empty structure."""
    return {"schema": 1, "modules": {"factor": {"lora": rank}} if rank else {}, "equal": []}


@dataclass
class Stock:
    """Puts things on the shelves of a registry; `pair` is the one program and foundation that all of them are."""

    registry: Registry
    pair: Pair

    def table(self, variant: int = 0) -> RelocationTable:
        """Where the pair's one factor stands; `variant` makes another table of the same places."""
        data = self.pair.program.read_bytes()
        (part,) = read_pte(data).inline
        keys = tuple(match.start() for match in re.finditer(part.key.encode(), data))
        slot = Slot(("factor",), "F32", (4, 8), part.size, (part.offset,), keys)
        return RelocationTable(len(data), (slot,), (f"dead {variant}",) if variant else ())

    def hollow(self, variant: int = 0) -> bytes:
        """The pair's program without its factor; `variant` in the padding makes another one of the same links."""
        data = bytearray(self.pair.program.read_bytes())
        data[read_pte(bytes(data)).segments[0].end] = variant
        return hollow(bytes(data), self.table())

    def factors(self, number: int) -> bytes:
        """A factor of its own for each number."""
        return number.to_bytes(4, "little") * (self.table().factor_bytes // 4)

    def program(self, number: int, variant: int = 8) -> bytes:
        """A program of its own digest for each number: the same links, other factors."""
        return relink(self.hollow(variant), self.table(), self.factors(number))

    def base(self, text: bytes = b"base") -> Base:
        put = self.registry.blobs.put_bytes
        files = {"config.json": put(b"{}"), "tokenizer.json": put(b"tokenizer of " + text)}
        return self.registry.add_base(Base(Digest.of(text), put(text), files, "/checkpoint"))

    def foundation(self, name: str, *, other: int = 0, **options: bool) -> Foundation:
        """The foundation under a name; `other` in the padding before the tensors makes it another one of equal ones."""
        data = bytearray(self.pair.foundation.read_bytes())
        data[min(entry.offset for entry in read_ptd(bytes(data)).entries) - 1] = other
        put = self.registry.blobs.put_bytes
        foundation = Foundation(
            file=put(bytes(data)),
            base=self.base().fingerprint,
            recipe={"quantization": "none", "other": other},
            modules=put(b"{}"),
            tensors=foundation_tensors(read_ptd(bytes(data)), bytes(data), {}),
        )
        return self.registry.add_foundation(foundation, name, **options)

    def template(self, foundation: Foundation, rank: int = 8, context: int = 512) -> Template:
        """A template of the foundation; of rank 0, its base program."""
        put = self.registry.blobs.put_bytes
        program = self.hollow(rank) if rank else self.program(1, 0)
        template = Template(
            digest=Digest.of(program),
            foundation=foundation.file.digest,
            structure=structure(rank),
            context=context,
            graph=1,
            executorch="1.5.1",
            hollow=put(pack(program) if rank else program),
            table=put(self.table(rank).to_bytes()),
            program_size=len(program),
            runtime=RUNTIME,
            kv_cache_bytes=1024,
        )
        return self.registry.add_template(template)

    def source(self, text: str) -> Source:
        put = self.registry.blobs.put_bytes
        files = {"adapter_config.json": put(b"{}"), "adapter_model.safetensors": put(text.encode())}
        return Source(files, {"README.md": put(b"about " + text.encode())})

    def publish(
        self, name: str, template: Template, text: str, version: str | None = None, number: int = 0
    ) -> PublishResult:
        """Publish what `text` names as the source of; the program's bytes follow from it, or from `number`."""
        number = number or int.from_bytes(Digest.of(text.encode()).raw[:3], "big")
        return self.registry.publish(
            name,
            version,
            self.source(text),
            template=template,
            file=self.registry.blobs.put_bytes(self.program(number, _rank(template))),
            factors=self.registry.blobs.put_bytes(self.factors(number)),
            lineage={"run": text},
            warnings=("base not pinned",),
        )


def _rank(template: Template) -> int:
    return next((int(module["lora"]) for module in template.structure["modules"].values()), 0)


def stocked(home: Path, pair: Pair) -> Stock:
    """A registry with foundation `f1`, its base program and a template, `pirate` and `json` 1.0.0, channel `stable`."""
    return fill(Registry.init(home, actor="tester", clock=lambda: NOW), pair)


def fill(registry: Registry, pair: Pair) -> Stock:
    """Put into an empty registry what `stocked` says."""
    stock = Stock(registry, pair)
    foundation = stock.foundation("f1")
    stock.template(foundation, rank=0)
    template = stock.template(foundation)
    stock.publish("pirate", template, "arr")
    stock.publish("json", template, "{}")
    stock.registry.create_channel("stable")
    return stock


def copied(home: Path, target: Path, pair: Pair) -> Stock:
    """A copy of a registry, to be changed."""
    shutil.copytree(home, target)
    return Stock(Registry.open(target, actor="tester", clock=lambda: NOW), pair)


@contextmanager
def refusing(operations: set[str], after: int, error: OSError) -> Iterator[list[files.Step]]:
    """Let the disk refuse every step of these operations after the first `after` ones; answers the steps so far."""
    steps: list[files.Step] = []

    def observe(step: files.Step) -> None:
        if step.operation in operations:
            if len(steps) >= after:
                raise error
            steps.append(step)

    with files.observed(observe):
        yield steps
