from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from exporter.base import fingerprint, read_base
from exporter.card import Card
from exporter.export import Job, export_adapter, export_base, export_template
from exporter.recipe import Recipe
from exporter.specs import parse_spec
from exporter.structure import Structure
from registry.digest import Digest
from registry.errors import FormatError, InputError
from registry.formats.ptd import read_ptd
from registry.formats.pte import read_pte
from registry.links import check_inline, check_links, foundation_tensors
from registry.relink import extract, hollow, pack, relink, unpack
from registry.relocation import RelocationTable
from tests.conftest import save_llama
from tests.runtime import prefill_and_decode, reference

TOKENS = [1, 9, 33, 7, 60, 12, 5, 41, 22, 17]
CONTEXT = 64
Factors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Tiny:
    """The tiny base, its foundation, and one template exported in this process."""

    job: Job
    card: Card
    foundation: Path
    base_program: bytes
    names: Mapping[str, tuple[str, ...]]
    structure: Structure
    table: RelocationTable
    hollow: bytes

    def full(self, factors: Factors, structure: Structure | None = None) -> bytes:
        tensors = {name: torch.from_numpy(value) for name, value in factors.items()}
        return export_adapter(self.job, structure or self.structure, tensors)

    def relinked(self, factors: Factors) -> bytes:
        return relink(self.hollow, self.table, b"".join(factors[slot.names[0]].tobytes() for slot in self.table.slots))

    def random_factors(self, seed: int) -> Factors:
        random = np.random.default_rng(seed)
        specs = self.structure.factors(self.card)
        return {spec.name: random.normal(0, 0.3, spec.shape).astype(np.float32) for spec in specs}


@pytest.fixture(scope="module")
def tiny(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    checkpoint = read_base(tiny_base)
    job = Job(checkpoint, Recipe(), CONTEXT, lambda _: None)
    made = export_base(job, tmp_path_factory.mktemp("export"))
    card = Card.from_json({**made.modules, "base": str(fingerprint(checkpoint.tensors))})
    structure = parse_spec("r4:all-linear", card)
    template = export_template(job, structure, card)
    return Tiny(
        job, card, made.foundation, made.program, made.names, structure, template.table,
        hollow(template.program, template.table),
    )  # fmt: skip


def test_the_base_program_answers_like_transformers(tiny: Tiny, tiny_base: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_base).eval()
    actual = prefill_and_decode(tiny.base_program, tiny.foundation, TOKENS)
    assert (actual - reference(model, TOKENS)).abs().max() < 1e-5


def test_a_relinked_adapter_is_its_full_export_byte_for_byte(tiny: Tiny) -> None:
    factors = tiny.random_factors(1)
    assert tiny.relinked(factors) == tiny.full(factors)


def test_relinking_and_reading_back_are_inverse(tiny: Tiny) -> None:
    factors = tiny.random_factors(2)
    program = tiny.relinked(factors)
    blob = extract(program, tiny.table)
    assert relink(tiny.hollow, tiny.table, blob) == program
    assert hollow(program, tiny.table) == tiny.hollow
    assert unpack(pack(tiny.hollow), len(tiny.hollow)) == tiny.hollow


def test_equal_and_zero_factors_give_another_structure_whose_relink_is_its_full_export(tiny: Tiny) -> None:
    factors = dict(tiny.random_factors(3))
    layer = "model.layers.0.self_attn"
    shared = factors[f"{layer}.q_proj.lora_A"]
    factors[f"{layer}.k_proj.lora_A"] = factors[f"{layer}.v_proj.lora_A"] = shared
    zero = ["model.layers.0.mlp.up_proj.lora_B", "model.layers.1.mlp.gate_proj.lora_B"]
    for name in zero:
        factors[name] = np.zeros_like(factors[name])
    structure = tiny.structure.with_equal([[f"{layer}.{p}_proj.lora_A" for p in "kqv"], zero])
    assert structure.digest != tiny.structure.digest

    template = export_template(tiny.job, structure, tiny.card)
    blob = b"".join(factors[slot.names[0]].tobytes() for slot in template.table.slots)
    relinked = relink(hollow(template.program, template.table), template.table, blob)
    assert relinked == tiny.full(factors, structure)


def test_every_template_exports_to_the_same_bytes_again(tiny: Tiny) -> None:
    again = export_template(tiny.job, tiny.structure, tiny.card)
    assert hollow(again.program, again.table) == tiny.hollow
    assert again.table == tiny.table


def test_the_foundation_is_the_same_file_for_every_context_and_export(tiny: Tiny, tmp_path: Path) -> None:
    other = Job(tiny.job.source, Recipe(), 128, lambda _: None)
    made = export_base(other, tmp_path)
    assert made.foundation.read_bytes() == tiny.foundation.read_bytes()
    assert made.program != tiny.base_program


def test_contexts_of_512_and_8192_tokens_share_one_foundation(tmp_path: Path) -> None:
    save_llama(tmp_path, num_hidden_layers=1, max_position_embeddings=8192)
    made = {}
    with read_base(tmp_path) as checkpoint:
        for context in (512, 8192):
            (tmp_path / str(context)).mkdir()
            made[context] = export_base(Job(checkpoint, Recipe(), context, lambda _: None), tmp_path / str(context))
    assert Digest.of_file(made[512].foundation) == Digest.of_file(made[8192].foundation)
    assert made[512].kv_cache_bytes == 2 * 512 * 2 * 8 * 4
    assert made[8192].kv_cache_bytes == 16 * made[512].kv_cache_bytes


def test_every_external_key_certifies_its_content_and_is_in_the_foundation(tiny: Tiny) -> None:
    data = tiny.foundation.read_bytes()
    pte = read_pte(tiny.base_program)
    tensors = foundation_tensors(read_ptd(data), data, tiny.names, pte.layouts)
    assert {tensor.key for tensor in tensors} == {asked.key for asked in pte.external}
    assert all(len(tensor.key.removeprefix("tensor_")) == 64 for tensor in tensors)
    assert all(tensor.names for tensor in tensors)
    program = tiny.relinked(tiny.random_factors(4))
    check_inline(read_pte(program), program)
    check_links(read_pte(program), tensors)


def test_an_adapter_holds_its_factors_and_no_base_weight(tiny: Tiny) -> None:
    pte = read_pte(tiny.relinked(tiny.random_factors(5)))
    assert sum(part.size for part in pte.inline) == tiny.table.factor_bytes
    assert sum(constant.size for constant in pte.constants) < 256


def test_a_foundation_with_another_embedding_does_not_load(tiny: Tiny, tiny_base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((tiny_base / name).read_bytes())
    tensors = load_file(tiny_base / "model.safetensors")
    tensors["model.embed_tokens.weight"][3, 5] += 0.5
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    other = tmp_path / "out"
    other.mkdir()
    made = export_base(Job(read_base(tmp_path), Recipe(), CONTEXT, lambda _: None), other)
    with pytest.raises(RuntimeError, match="0x:20"):
        prefill_and_decode(tiny.base_program, made.foundation, TOKENS)


def test_a_context_beyond_the_model_is_refused_with_the_limit(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="context 129 is outside 2 to 128"):
        export_base(Job(tiny.job.source, Recipe(), 129, lambda _: None), tmp_path)


def test_a_table_whose_sites_overlap_or_leave_the_program_is_refused(tiny: Tiny) -> None:
    text = tiny.table.to_bytes()
    assert RelocationTable.from_bytes(text) == tiny.table
    size = str(tiny.table.program_size).encode()
    with pytest.raises(FormatError, match="a site ends at byte"):
        RelocationTable.from_bytes(text.replace(size, b"4096"))
    first = tiny.table.slots[0]
    moved = text.replace(f'"data":[{first.data[0]}]'.encode(), f'"data":[{first.data[0] + 16}]'.encode())
    with pytest.raises(FormatError, match="overlaps"):
        RelocationTable.from_bytes(moved)


@pytest.mark.parametrize("damage", [lambda z: z[:-3], lambda z: z + b"x", lambda z: b"\0" + z[1:]])
def test_a_damaged_packed_template_is_refused(tiny: Tiny, damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(FormatError):
        unpack(damage(pack(tiny.hollow)), len(tiny.hollow))
    with pytest.raises(FormatError):
        unpack(pack(tiny.hollow), len(tiny.hollow) - 1)
    assert hashlib.sha256(unpack(pack(tiny.hollow), len(tiny.hollow))).digest()
