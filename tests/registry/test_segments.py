"""A foundation's pieces make up the file, and what did not change has the same piece wherever it stands."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from registry.digest import Digest
from registry.errors import FormatError
from registry.formats.ptd import read_ptd
from registry.segments import SegmentTable, cuts
from tests.registry.files import Pair, foundation_bytes

TENSORS = {"a": b"a" * 1000, "b": b"b" * 128, "c": b"c" * 5, "d": b"d" * 3000}


def write(path: Path, tensors: dict[str, bytes]) -> Path:
    path.write_bytes(foundation_bytes(tensors))
    return path


def test_the_pieces_follow_each_other_and_make_up_the_file(pair: Pair) -> None:
    data = pair.foundation.read_bytes()
    table = SegmentTable.of_file(pair.foundation)
    assert table.size == len(data)
    assert len(table.pieces) == len(read_ptd(data).segments) + 1
    for piece, (start, end) in zip(table.pieces, pairwise(cuts(read_ptd(data))), strict=True):
        assert piece.size == end - start
        assert piece.digest == Digest.of(data[start:end])


def test_a_tensor_that_moved_keeps_its_piece(tmp_path: Path) -> None:
    old = SegmentTable.of_file(write(tmp_path / "old", TENSORS))
    new = SegmentTable.of_file(write(tmp_path / "new", {**TENSORS, "a": b"A" * 5000, "e" * 200: b"e"}))
    changed = [piece for piece in new.pieces if piece not in old.pieces]
    assert [piece.size for piece in old.pieces[1:]] == [1024, 128, 128, 3000]
    # The header, the tensor that changed, the one that was last and has padding behind it now, the new one.
    assert [piece.size for piece in changed[1:]] == [5120, 3072, 1]


def test_parse_and_print_are_inverse(tmp_path: Path) -> None:
    table = SegmentTable.of_file(write(tmp_path / "f", TENSORS))
    assert SegmentTable.from_bytes(table.to_bytes()) == table


def test_progress_adds_up_to_the_file(tmp_path: Path) -> None:
    heard: list[int] = []
    path = write(tmp_path / "f", TENSORS)
    SegmentTable.of_file(path, heard.append)
    assert sum(heard) == path.stat().st_size


def test_what_is_no_foundation_has_no_pieces(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(foundation_bytes(TENSORS)[:-1])
    with pytest.raises(FormatError):
        SegmentTable.of_file(path)


@pytest.mark.parametrize(
    "change",
    [{"pieces": None}, {"pieces": [{}]}, {"pieces": [{"size": 0, "digest": str(Digest.of(b""))}]}, {"schema": 2}],
)
def test_a_document_that_is_none_is_refused(change: dict[str, Any]) -> None:
    document = {"schema": 1, "critical": [], "pieces": [{"size": 1, "digest": str(Digest.of(b"a"))}]}
    assert SegmentTable.from_bytes(json.dumps(document).encode()).size == 1
    with pytest.raises(FormatError):
        SegmentTable.from_bytes(json.dumps(document | change).encode())
