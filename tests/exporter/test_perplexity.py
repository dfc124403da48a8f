from __future__ import annotations

import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from exporter.base import read_base
from exporter.decoder_export import DecoderModel
from exporter.perplexity import CHUNK, TEXT, perplexity, text_ids


def test_perplexity_is_transformers_loss(tiny_base: Path) -> None:
    ids = [1, *(7 * n % 61 for n in range(2 * CHUNK + 5))]
    with read_base(tiny_base) as checkpoint:
        decoder = DecoderModel(checkpoint, len(ids)).build(lambda _: None)
    tokens = torch.tensor([ids])
    with torch.no_grad():
        loss = float(AutoModelForCausalLM.from_pretrained(tiny_base).eval()(tokens, labels=tokens).loss)
    assert abs(perplexity(decoder, ids) - math.exp(loss)) < 2e-3
    assert perplexity(decoder, ids) == perplexity(decoder, ids)


def test_the_text_is_cut_at_the_context_and_needs_a_tokenizer(tiny_base: Path) -> None:
    files = {"tokenizer.json": tiny_base / "tokenizer.json"}
    ids = text_ids(files, 2048)
    assert ids is not None
    assert 150 < len(TEXT.split()) < len(ids)
    assert text_ids(files, 16) == ids[:16]
    assert text_ids({}, 2048) is None
    assert text_ids(files, 1) is None
