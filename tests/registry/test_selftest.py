"""The self-test's document: parse and print are inverse, and nonsense is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from registry.errors import FormatError
from registry.selftest import Probe, SelfTest

TEST = SelfTest((Probe((1, 9, 33), (0, 2), (9, 7)), Probe((4,), (0,), (5,))), 0.9)


def test_parse_and_print_are_inverse() -> None:
    assert SelfTest.from_bytes(TEST.to_bytes()) == TEST
    assert TEST.positions == 3


@pytest.mark.parametrize(
    "probe",
    [
        {"token_ids": [1], "positions": [], "argmax": []},
        {"token_ids": [1, 2], "positions": [0, 1], "argmax": [1]},
        {"token_ids": [1, 2], "positions": [2], "argmax": [1]},
        {"token_ids": [1, 2], "positions": [1, 0], "argmax": [1, 1]},
        {"token_ids": [1, 2], "positions": [1, 1], "argmax": [1, 1]},
        {"token_ids": [1, 2], "positions": [-1], "argmax": [1]},
        {"token_ids": [1.0], "positions": [0], "argmax": [1]},
    ],
)
def test_a_probe_that_cannot_be_is_refused(probe: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        SelfTest.from_bytes(json.dumps({**json.loads(TEST.to_bytes()), "probes": [probe]}).encode())


@pytest.mark.parametrize("change", [{"probes": []}, {"agreement": 0}, {"agreement": 1.1}, {"agreement": True}])
def test_a_test_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        SelfTest.from_bytes(json.dumps({**json.loads(TEST.to_bytes()), **change}).encode())
