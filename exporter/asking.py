"""What a user asks of a build, read before anything that takes time. Torch-free.

    probes = read_asked(registry, foundation, Path("prompts.jsonl"), context, prompt)

A proof takes seconds to load PyTorch and to hash the checkpoint, and a new structure an export; a wrong file of probes
is to be known before that.
"""

from __future__ import annotations

from pathlib import Path

from exporter.card import Card
from exporter.linker import card_of
from exporter.parts import base_files
from exporter.probes import Probe, Vocabulary, read_probes
from registry.artifacts import Build, Foundation
from registry.errors import InputError
from registry.prompt import Prompt
from registry.service import Registry


def read_asked(
    registry: Registry, foundation: Foundation, path: Path | None, context: int, prompt: bytes | None
) -> tuple[Probe, ...]:
    """A user's probes of a program, none without a file; `prompt` is its adapter's own chat format.

    Raises InputError or FormatError naming the line, InputError for a foundation that takes no prompts.
    """
    if path is None:
        return ()
    if module := foundation.recipe.get("module"):
        raise InputError(
            "a foundation of a module of its own takes no prompts",
            hint=f"leave --probes out: it is asked the inputs that {module} answers, and variants of them",
        )
    return read_probes(path, vocabulary_of(registry, foundation, card_of(registry, foundation), prompt), context)


def asked_of(registry: Registry, build: Build, path: Path | None) -> tuple[Probe, ...]:
    """`read_asked` for a recorded build."""
    prompt = registry.blobs.read(build.parts["prompt"].digest) if path and "prompt" in build.parts else None
    context = registry.template_of(build).context
    return read_asked(registry, registry.foundation(build.foundation), path, context, prompt)


def vocabulary_of(registry: Registry, foundation: Foundation, card: Card, prompt: bytes | None) -> Vocabulary:
    """How texts become token ids for programs on a foundation. Raises InputError where it embeds no tokens."""
    blobs, base, embedding = registry.blobs, registry.base(foundation.base), card.input_embedding
    if embedding is None:
        raise InputError("the base embeds no tokens, so no text can prove its adapters")
    chat = prompt or (blobs.read(base.prompt.digest) if base.prompt else None)
    size = card.modules[embedding].inputs
    return Vocabulary.of(base_files(blobs, base), size, Prompt.from_bytes(chat) if chat else None)
