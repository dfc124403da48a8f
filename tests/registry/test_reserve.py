"""The space that a home sets aside for the collector: there when it is needed, and never in the way."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from registry import files
from registry.reserve import SIZE, lent
from tests.command_line import answer, ptdock, refusal
from tests.registry.stock import refusing


def test_a_store_has_a_reserve_from_the_start_and_after_each_collection(tmp_path):
    home = tmp_path / "home"
    answer(home, "init")
    assert (home / "reserve").stat().st_size == SIZE

    answer(home, "gc")

    assert (home / "reserve").stat().st_size == SIZE


def test_the_reserve_is_given_up_while_it_is_lent(tmp_path):
    with lent(tmp_path):
        pass
    assert (tmp_path / "reserve").exists()

    with lent(tmp_path):
        assert not (tmp_path / "reserve").exists()

    assert (tmp_path / "reserve").stat().st_size == SIZE


def test_a_failure_takes_the_reserve_back_and_makes_none(tmp_path):
    with pytest.raises(RuntimeError), lent(tmp_path):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with lent(tmp_path):
        pass

    with pytest.raises(RuntimeError), lent(tmp_path):
        raise RuntimeError

    assert (tmp_path / "reserve").exists()


def test_where_there_is_no_room_for_a_reserve_there_is_none_and_no_error(tmp_path):
    with refusing({"write"}, 0, OSError(errno.ENOSPC, "No space left on device")), lent(tmp_path):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_collection_where_no_store_is_leaves_nothing(tmp_path):
    refusal(tmp_path, "gc", code=5)

    assert list(tmp_path.iterdir()) == []


def test_the_reserve_goes_before_the_database_is_opened(tmp_path):
    home = tmp_path / "home"
    answer(home, "init")
    (home / "registry.db").write_bytes(b"no database")

    steps: list[tuple[str, str]] = []
    with files.observed(lambda step: steps.append((step.operation, Path(step.path).name))):
        assert ptdock(home, "gc").exit_code == 7

    assert steps[0] == ("unlink", "reserve")
    assert (home / "reserve").exists()
