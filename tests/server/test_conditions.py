"""HTTP's rules about which bytes of a file a request gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.conditions import Judged, judge

TAG = '"ab"'


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, Judged(200, 0, 10)),
        ({"if-none-match": '"ab"'}, Judged(304)),
        ({"if-none-match": 'W/"ab"'}, Judged(304)),
        ({"if-none-match": '"x", "ab"'}, Judged(304)),
        ({"if-none-match": "*"}, Judged(304)),
        ({"if-none-match": '"x"'}, Judged(200, 0, 10)),
        ({"if-none-match": "ab"}, Judged(200, 0, 10)),
        ({"if-match": '"ab"'}, Judged(200, 0, 10)),
        ({"if-match": "*"}, Judged(200, 0, 10)),
        ({"if-match": 'W/"ab"'}, Judged(412)),
        ({"if-match": '"x"', "if-none-match": '"ab"'}, Judged(412)),
        ({"range": "bytes=0-3"}, Judged(206, 0, 4)),
        ({"range": "bytes=4-"}, Judged(206, 4, 10)),
        ({"range": "Bytes=4-999"}, Judged(206, 4, 10)),
        ({"range": "bytes=9-9"}, Judged(206, 9, 10)),
        ({"range": "bytes=10-"}, Judged(416)),
        ({"range": "bytes=99999999999999999999-"}, Judged(416)),
        ({"range": "bytes=-3"}, Judged(206, 7, 10)),
        ({"range": "bytes=-30"}, Judged(206, 0, 10)),
        ({"range": "bytes=-0"}, Judged(416)),
        ({"range": "bytes=3-1"}, Judged(200, 0, 10)),
        ({"range": "bytes=0-1,4-5"}, Judged(200, 0, 10)),
        ({"range": "bytes=-"}, Judged(200, 0, 10)),
        ({"range": "pages=1-2"}, Judged(200, 0, 10)),
        ({"range": "bytes=0-3", "if-range": '"ab"'}, Judged(206, 0, 4)),
        ({"range": "bytes=0-3", "if-range": 'W/"ab"'}, Judged(200, 0, 10)),
        ({"range": "bytes=0-3", "if-range": "Mon, 01 Jan 2026 00:00:00 GMT"}, Judged(200, 0, 10)),
        ({"range": "bytes=0-3", "if-none-match": '"ab"'}, Judged(304)),
    ],
)
def test_the_conditions_of_rfc_9110_hold(headers, expected):
    assert judge(headers, TAG, 10) == expected


def test_an_empty_file_has_no_range():
    assert judge({"range": "bytes=0-"}, TAG, 0) == Judged(416)


@given(st.text(max_size=40), st.text(max_size=40), st.integers(0, 1 << 40))
def test_any_header_gets_bytes_of_the_file_or_a_refusal(ranged, condition, size):
    judged = judge({"range": f"bytes={ranged}", "if-none-match": condition}, TAG, size)

    assert judged.status in {200, 206, 304, 416}
    assert 0 <= judged.start <= judged.stop <= size
