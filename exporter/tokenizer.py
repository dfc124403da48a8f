"""Tokenizer files by what they mean: which token has which id, how text is cut, how a chat is written, what ends it.

transformers writes the same tokenizer differently from version to version (merges as text or as pairs, padding and
truncation of the last call), so raw bytes decide only equality. Pure; formats: Hugging Face's `tokenizer.json` and
`tokenizer_config.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exporter.card import TokenizerCard
from registry import canonical
from registry.digest import Digest
from registry.errors import FormatError

TOKENIZER, CONFIG, GENERATION = "tokenizer.json", "tokenizer_config.json", "generation_config.json"
# What decides token ids, best first; a directory holds one kind or several of one tokenizer.
VOCABULARY_FILES = (TOKENIZER, "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt")
CHAT_FILES = (CONFIG, "special_tokens_map.json", "chat_template.jinja", "chat_template.json")
"""What a chat's text depends on; all of them are small."""
FILES = (*VOCABULARY_FILES, "merges.txt", "added_tokens.json", GENERATION, *CHAT_FILES)
_ID = re.compile(r"[0-9]{1,9}", re.ASCII)
_RULES = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
Files = Mapping[str, bytes]


def describe(files: Files) -> TokenizerCard | None:
    """The digests of a tokenizer's files, given by name; None when they hold no vocabulary. Raises FormatError."""
    source = vocabulary_file(files)
    if source is None:
        return None
    document = read_object(files, TOKENIZER)
    ids = token_ids(document)
    return TokenizerCard(
        files=digests(files),
        source=source,
        vocabulary=_vocabulary(document, ids) if document else Digest.of(files[source] + files.get("merges.txt", b"")),
        size=len(ids) or None,
        rules=_rules(document) if document else None,
        chat_template=_digest(chat_template(files)),
        eos=_ends(files, ids or _listed_ids(files)),
    )


def digests(files: Files) -> dict[str, Digest]:
    """The digests of the files that say all of what is read here."""
    return {name: Digest.of(data) for name, data in sorted(files.items()) if name in FILES}


def vocabulary_file(files: Files) -> str | None:
    """The file that decides token ids; None when there is none."""
    return next((name for name in VOCABULARY_FILES if name in files), None)


def read_object(files: Files, name: str) -> dict[str, Any]:
    """A JSON object among the files; empty when it is absent. Raises FormatError."""
    if name not in files:
        return {}
    document = canonical.loads(files[name], what=name)
    if not isinstance(document, dict):
        raise FormatError(f"{name}: expected an object, got {type(document).__name__}")
    return document


def token_ids(document: Mapping[str, Any]) -> dict[str, int]:
    """The id of each token of a parsed `tokenizer.json`, added tokens included. Raises FormatError."""
    vocabulary = _model(document).get("vocab")
    if isinstance(vocabulary, list):  # Unigram: [piece, score], the place is the id
        pieces = [entry[0] if isinstance(entry, list) and entry else None for entry in vocabulary]
        ids: dict[str, Any] = {piece: place for place, piece in enumerate(pieces) if isinstance(piece, str)}
    else:
        ids = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    for entry in _items(document, "added_tokens"):
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            ids[entry["content"]] = entry.get("id")
    if not all(type(number) is int and number >= 0 for number in ids.values()):
        raise FormatError(f"{TOKENIZER}: token ids must be integers >= 0")
    return ids


def _items(document: Mapping[str, Any], name: str) -> list[Any]:
    items = document.get(name) or []
    if not isinstance(items, list):
        raise FormatError(f"{TOKENIZER}: {name!r} must be a list")
    return items


def _model(document: Mapping[str, Any]) -> dict[str, Any]:
    model = document.get("model")
    return model if isinstance(model, dict) else {}


def _vocabulary(document: Mapping[str, Any], ids: Mapping[str, int]) -> Digest:
    """What decides ids: the model's type, its tokens with ids (and scores), its merges in order."""
    model = _model(document)
    merges = [" ".join(map(str, pair)) if isinstance(pair, list) else pair for pair in _items(model, "merges")]
    scores = model["vocab"] if isinstance(model.get("vocab"), list) else None
    return Digest.of(canonical.dumps([model.get("type"), ids, scores, merges]))


def _rules(document: Mapping[str, Any]) -> Digest:
    """How text is cut before and joined after, and how added tokens match."""
    return Digest.of(canonical.dumps([document.get(name) for name in _RULES] + [document.get("added_tokens")]))


def chat_template(files: Files) -> str | None:
    """The chat template's text: `chat_template.jinja`, else the config's; of several, the one named default."""
    if "chat_template.jinja" in files:
        try:
            return files["chat_template.jinja"].decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"chat_template.jinja: not UTF-8 at byte {error.start}") from None
    for name in ("chat_template.json", CONFIG):
        template = read_object(files, name).get("chat_template")
        if isinstance(template, str):
            return template
        if isinstance(template, list):
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            if isinstance(named.get("default"), str):
                return str(named["default"])
    return None


def special_tokens(files: Files) -> dict[str, str]:
    """`bos_token`, `eos_token` and the like by name, as chat templates ask for them."""
    found = {}
    for name in ("special_tokens_map.json", CONFIG):
        for key, value in read_object(files, name).items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                found[key] = text
    return found


def eos_ids(files: Files) -> tuple[int, ...]:
    """The ids that end an answer: generation_config.json's, and the tokenizer's eos_token where its id is known."""
    return _ends(files, token_ids(read_object(files, TOKENIZER)) or _listed_ids(files))


def _ends(files: Files, ids: Mapping[str, int]) -> tuple[int, ...]:
    listed = read_object(files, GENERATION).get("eos_token_id")
    numbers = listed if isinstance(listed, list) else [listed]
    ends = {number for number in numbers if type(number) is int and number >= 0}
    eos = special_tokens(files).get("eos_token")
    return tuple(sorted(ends | ({ids[eos]} if eos is not None and eos in ids else set())))


def named_ids(files: Files) -> frozenset[int]:
    """The ids that the files beside `tokenizer.json` speak of: added tokens, and what ends an answer."""
    beside = {name: data for name, data in files.items() if name != TOKENIZER}
    added = [number for number in read_object(beside, "added_tokens.json").values() if type(number) is int]
    return frozenset((*added, *_listed_ids(beside).values(), *eos_ids(beside)))


def _listed_ids(files: Files) -> dict[str, int]:
    """The few token ids that the config lists."""
    decoder = read_object(files, CONFIG).get("added_tokens_decoder")
    entries = decoder.items() if isinstance(decoder, dict) else ()
    return {
        entry["content"]: int(number)
        for number, entry in entries
        if _ID.fullmatch(number) and isinstance(entry, dict) and isinstance(entry.get("content"), str)
    }


def _digest(text: str | None) -> Digest | None:
    return None if text is None else Digest.of(text.encode("utf-8", "surrogatepass"))
