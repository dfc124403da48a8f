"""What a build carries for devices beside its `.pte`: its own chat format, and its factors in the form of the wire."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exporter import tokenizer
from exporter.fold import Factor, Folded
from exporter.peft.adapter import NormalizedAdapter, Values
from exporter.prompt import Template, encoder, read_prompt
from registry import canonical, wire
from registry.artifacts import Base
from registry.blobs import BlobStore
from registry.relocation import RelocationTable


def read_files(files: Mapping[str, Path]) -> tokenizer.Files:
    """A checkpoint's config and tokenizer files by name."""
    return {name: path.read_bytes() for name, path in files.items()}


def base_files(store: BlobStore, base: Base, among: Collection[str] | None = None) -> tokenizer.Files:
    """A recorded base's config and tokenizer files by name; only those `among` these names are read."""
    return {name: store.read(file.digest) for name, file in base.files.items() if among is None or name in among}


def module_document(table: Mapping[str, Any], files: tokenizer.Files) -> bytes:
    """A foundation's module table with its tokenizer's digests, so that no publish has to read the tokenizer again.

    A table that has those of the very same files, because it is a fine-tune's, is left as it is.
    """
    known = table.get("tokenizer")
    if known and known["files"] == {name: str(digest) for name, digest in tokenizer.digests(files).items()}:
        return canonical.dumps(table)
    described = tokenizer.describe(files)
    return canonical.dumps({**table, "tokenizer": None if described is None else described.to_json()})


def own_prompt(store: BlobStore, base: Base, adapter: NormalizedAdapter) -> bytes | None:
    """The adapter's prompt document, None where it chats as its base does, or in no way that affixes can say."""
    if not chats_otherwise(store, base, adapter):
        return None
    files, chat = base_files(store, base), adapter.chat
    text = chat.template or tokenizer.chat_template(files)
    if text is None or tokenizer.TOKENIZER not in files:
        return None
    template = Template(text, {**tokenizer.special_tokens(files), **chat.special_tokens})
    stops = chat.stop_token_ids or tokenizer.eos_ids(files)
    prompt = read_prompt(template, encoder(files), stop_token_ids=stops)
    return None if prompt is None else prompt.to_bytes()


def chats_otherwise(store: BlobStore, base: Base, adapter: NormalizedAdapter) -> bool:
    """Whether the adapter has a template or stop tokens of its own, or other special tokens in the base's template."""
    chat = adapter.chat
    if chat.own or not chat.special_tokens:
        return chat.own
    small = base_files(store, base, tokenizer.CHAT_FILES)
    text, known = tokenizer.chat_template(small) or "", tokenizer.special_tokens(small)
    return any(name in text and known.get(name) != token for name, token in chat.special_tokens.items())


def wire_form(
    table: RelocationTable, adapter: NormalizedAdapter, folded: Folded, factors: bytes
) -> tuple[bytes, bytes]:
    """The factors as trained and their wire table; `factors` are the folded ones, in the table's order.

    Even factors trained in the programs' own dtype are less than the program. What is no smaller as it was trained, and
    what a device could not fold back to the very same bytes, travels folded: it is in the store already.
    """
    trained = {slot.names[0]: _smaller(adapter, folded, slot.names[0]) for slot in table.slots}
    if not any(trained.values()):
        return factors, wire.folded_table(table)
    whole = {name: source or _as_folded(folded.tensors[name]) for name, source in trained.items()}
    document, data = wire.encode(table, whole)
    return data, document


def _smaller(adapter: NormalizedAdapter, folded: Folded, name: str) -> wire.Trained | None:
    """A factor as it was trained, where that takes fewer bytes and folds to the same."""
    factor, (values, scale) = folded.tensors[name], _source(adapter, name)
    if values is None or wire.WIDTHS.get(values.dtype, 8) >= wire.WIDTHS[factor.dtype]:
        return None
    source = wire.Trained(values.dtype, values.load(), np.float32(scale))
    return source if _folds_back(source, factor.dtype, bytes(factor.data)) else None


def _as_folded(factor: Factor) -> wire.Trained:
    kind = "<f2" if factor.dtype == "F16" else "<f4"
    return wire.Trained(factor.dtype, np.frombuffer(factor.data, kind).astype(np.float32))


def _source(adapter: NormalizedAdapter, factor: str) -> tuple[Values | None, float]:
    """What a factor was trained as, and what folding multiplies it by; None where folding does more than that."""
    module_name, _, role = factor.rpartition(".")
    module = adapter.modules.get(module_name)
    if module is None or module.magnitude is not None:
        return None, 1.0
    places: dict[str, tuple[Values | None, float]] = {
        "lora_A": (module.lora_a, 1.0),
        "lora_B": (module.lora_b, module.scaling),
        "lora_embedding_A": (module.embedding_a, 1.0),
        "lora_embedding_B": (module.embedding_b, module.scaling),
    }
    return places.get(role, (None, 1.0))


def _folds_back(source: wire.Trained, dtype: str, expected: bytes) -> bool:
    kind = np.float16 if dtype == "F16" else np.float32
    with np.errstate(all="ignore"):
        return (source.values * source.scale).astype(kind).tobytes() == expected
