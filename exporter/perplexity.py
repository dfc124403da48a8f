"""What quantization did to a model, in one figure: its perplexity on a small fixed text. Imports torch.

Perplexity is e to the mean loss per token: how many tokens the model hesitates between. It compares a model with
itself; tokenizers cut the text differently, so two models' figures say nothing of each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.nn import functional

from exporter.decoder import Decoder

TEXT = """\
The lighthouse at the end of the bay had been dark for eleven years when Marta bought it. The roof leaked, the stairs \
were rotten, and gulls had nested in the lamp room, but the walls were sound and the price was that of a used car. She \
came on weekends at first, with tools and a tent, and later stayed for whole weeks.

Most of the work was ordinary. Water had to be kept out, wood had to be cut to length, and everything that was made of \
iron had to be scraped, primed and painted. What she had not expected was how much there was to learn about light. The \
old lens, taller than a person, bent the flame of a single oil burner into a beam that could be seen from twenty miles \
away. Each of its prisms was ground at a different angle, and if one of them was put back upside down, part of the \
beam pointed at the sea floor.

In the third summer a retired engineer from the village helped her to put it together. They numbered the prisms with \
chalk, washed them in warm water and vinegar, and checked every angle against a drawing from 1887. When they lit a \
lamp behind the glass that evening, people on the far shore telephoned to ask what had happened.
"""
"""Written for this purpose, so that no model has learned it by heart."""

CHUNK = 32
"""Positions whose logits are in memory at a time."""


def text_ids(files: Mapping[str, Path], limit: int) -> list[int] | None:
    """The tokens of TEXT by the checkpoint's tokenizer, at most `limit`; None where there is no fast tokenizer."""
    if "tokenizer.json" not in files:
        return None
    from tokenizers import Tokenizer  # noqa: PLC0415  a base without a tokenizer needs no such library

    ids: list[int] = Tokenizer.from_file(str(files["tokenizer.json"])).encode(TEXT).ids[:limit]
    return ids if len(ids) > 1 else None


def perplexity(decoder: Decoder, ids: list[int]) -> float:
    """The exponential of the mean loss over `ids[1:]`, each predicted from all before it; three decimals."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        hidden = decoder.model.hidden(tokens, 0)[:-1]
        pairs = zip(hidden.split(CHUNK), tokens[0, 1:].split(CHUNK), strict=True)
        losses = [functional.cross_entropy(decoder.logits(h).float(), t, reduction="sum") for h, t in pairs]
    return round(math.exp(float(sum(losses)) / (len(ids) - 1)), 3)
