"""The tokenizer beside an adapter against the foundation's: one vocabulary, but the chat format may be its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter import tokenizer
from exporter.card import Card, TokenizerCard
from exporter.peft.adapter import Chat
from exporter.peft.findings import Findings
from exporter.peft.modules import VOCABULARY_HINT
from registry.digest import Digest
from registry.errors import FormatError

SAME_HINT = "adapters of one foundation share its tokenizer: use the base's, or export a foundation of the changed base"


def read_chat(directory: Path, names: Mapping[str, object], card: Card, findings: Findings) -> Chat:
    """Compare the tokenizer files among an adapter's attachments `names` with the card's."""
    if card.tokenizer is None:
        message = "no tokenizer is pinned: the base has none, so nothing proves how text becomes tokens"
        findings.note("no-tokenizer", "tokenizer", message)
    files = {name: (directory / name).read_bytes() for name in tokenizer.FILES if name in names}
    if not files or card.tokenizer is None:
        return Chat()
    try:
        return _compare(files, card.tokenizer, _beyond(files, card, findings), findings)
    except FormatError as error:
        hint = error.hint or "save the tokenizer again, or leave its files out"
        findings.error("tokenizer-format", "tokenizer", error.message, hint=hint)
        return Chat()


def _beyond(files: Mapping[str, bytes], card: Card, findings: Findings) -> frozenset[int]:
    """The tokens that are named beside the adapter and that the model does not have."""
    rows = card.modules[card.input_embedding].inputs if card.input_embedding else None
    beyond = sorted(number for number in tokenizer.named_ids(files) if rows is not None and number >= rows)
    if beyond:
        message = f"token {beyond[0]} is named beside the adapter, but the base's vocabulary is {rows}: it cannot occur"
        findings.warning("token-beyond", "tokenizer", message, expected=rows, actual=beyond[:20], hint=VOCABULARY_HINT)
    return frozenset(beyond)


def _compare(files: Mapping[str, bytes], base: TokenizerCard, beyond: frozenset[int], findings: Findings) -> Chat:
    changed = {name: data for name, data in files.items() if base.files.get(name) != Digest.of(data)}
    if tokenizer.vocabulary_file(changed) is not None:
        _compare_vocabulary(files, base, findings)
    template = tokenizer.chat_template(files)
    own_template = template is not None and Digest.of(template.encode("utf-8", "surrogatepass")) != base.chat_template
    if own_template:
        findings.note("chat-template", "chat_template", "another chat template than the base's: the build carries it")
    return Chat(
        template if own_template else None,
        tokenizer.special_tokens(files),
        _own_stops(changed, files, base, beyond, findings),
    )


def _compare_vocabulary(files: Mapping[str, bytes], base: TokenizerCard, findings: Findings) -> None:
    own = tokenizer.describe(files)
    if own is None or own.source != base.source:
        message = f"the tokenizer ({own.source if own else 'none'}) cannot be compared with the base's ({base.source})"
        findings.warning("tokenizer-not-compared", "tokenizer", message, expected=base.source)
    elif own.vocabulary != base.vocabulary:
        sizes = f"{own.size} tokens, the base has {base.size}" if own.size else "the base's differs"
        message = f"{own.source}: another vocabulary: {sizes}"
        findings.error("vocabulary", own.source, message, expected=base.size, actual=own.size, hint=SAME_HINT)
    elif own.rules != base.rules:
        message = f"{own.source}: the same vocabulary, but text is cut otherwise; programs use the base's tokenizer"
        findings.warning("tokenizer-rules", own.source, message, hint=SAME_HINT)


def _own_stops(
    changed: Mapping[str, bytes],
    files: Mapping[str, bytes],
    base: TokenizerCard,
    beyond: frozenset[int],
    findings: Findings,
) -> tuple[int, ...]:
    """The ids that end this adapter's answers, when they are not the base's."""
    if not {tokenizer.CONFIG, tokenizer.GENERATION, "special_tokens_map.json"} & changed.keys():
        return ()
    stops = tuple(number for number in tokenizer.eos_ids(files) if number not in beyond)
    if not stops and tokenizer.special_tokens(files).get("eos_token") is not None:
        message = "the id of the adapter's eos_token is not known without its tokenizer.json; the base's is used"
        findings.warning("eos-unknown", tokenizer.CONFIG, message, hint="save the tokenizer beside the adapter")
    if not stops or set(stops) <= set(base.eos):
        return ()
    message = f"another end of sequence than the base's: the build carries stop_token_ids {list(stops)}"
    findings.note("eos", tokenizer.CONFIG, message, expected=list(base.eos), actual=list(stops))
    return stops
