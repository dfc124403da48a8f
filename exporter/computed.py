"""What of a checkpoint's config files reaches its programs, beside the weights. Torch-free.

    computed(files) == computed(others)      # then the two checkpoints' programs differ in their weights alone

An ExecuTorch program computes the architecture, and answers the ids of the tokens that begin and end a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.architecture import DecoderSpec, decoder_spec
from exporter.tokenizer import GENERATION, Files, read_object
from registry import canonical
from registry.errors import InputError

CONFIG = "config.json"
CONFIGS = (CONFIG, GENERATION)
"""The files that `computed` reads."""
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Computed:
    """The architecture, the token that begins a text, those that end one."""

    spec: DecoderSpec
    bos: int | None
    eos: tuple[int, ...]


def computed(files: Files) -> Computed:
    """Read `config.json` and `generation_config.json`, given by name. Raises InputError, FormatError."""
    config = canonical.loads(files[CONFIG], what=CONFIG)
    bos, eos = (_ids(files, config, name) for name in ("bos_token_id", "eos_token_id"))
    return Computed(decoder_spec(config), bos[0] if bos else None, eos)


def _ids(files: Files, config: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The generation config's, or else the config's; below zero stands for none."""
    generation = read_object(files, GENERATION)
    file, value = (GENERATION, generation[name]) if name in generation else (CONFIG, config.get(name))
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for each in ids:
        if type(each) is not int or each > _LARGEST:
            raise InputError(f"{file}: {name} must be a token id or a list of them, not {value!r:.60}", field=name)
    return tuple(each for each in ids if each >= 0)
