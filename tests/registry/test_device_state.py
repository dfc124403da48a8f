"""The device state document: strict where it speaks, silent where it does not know."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.device_state import ActiveSet, App, ChannelState, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import FormatError
from registry.release import AdapterEntry, FoundationEntry, Line, Requires


def pin(text, size=10):
    return Descriptor(Digest.of(text.encode()), size)


LINE = Line(FoundationEntry(pin("f")), pin("b"), Requires((1, 5), (1, 6)), (AdapterEntry("pirate", "1.0.0", pin("p")),))
ACTIVE = ActiveSet(3, pin("document"), LINE)
STABLE = ChannelState("123e4567-e89b-42d3-a456-426614174000", 1, 42, 1_780_000_000, ACTIVE, ACTIVE, (pin("r").digest,))
PHONE = DeviceState(
    "phone-1",
    "1.5.1",
    App("android", 512),
    ("XnnpackBackend",),
    (),
    8_000_000_000,
    2_000_000_000,
    0,
    (pin("f"), pin("b")),
    ("pirate",),
    ("robot",),
    ("factors",),
    {"stable": STABLE},
)


def edited(**values):
    return json.dumps(PHONE.to_json() | values).encode()


@pytest.mark.parametrize("state", [PHONE, DeviceState("x")], ids=["full", "bare"])
def test_reading_what_was_written_gives_the_same_value(state):
    assert DeviceState.from_bytes(state.to_bytes()) == state


def test_a_device_may_state_its_id_alone():
    assert DeviceState.from_bytes(b'{"schema": 1, "id": "phone-1"}') == DeviceState("phone-1")


def test_an_empty_list_is_not_the_same_as_nothing_stated():
    assert DeviceState.from_bytes(b'{"schema":1,"id":"x","operators":[],"wants":[]}') == DeviceState(
        "x", operators=(), wants=()
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.5.1", (1, 5)), ("1.5", (1, 5)), ("1.10.0a0+git1234", (1, 10)), ("2.0.0-rc.1", (2, 0))],
)
def test_the_runtime_is_the_major_and_minor_of_its_version(text, expected):
    assert DeviceState.from_bytes(edited(executorch=text)).runtime == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schema": 2}, "schema 2"),
        ({"critical": ["gpu"]}, "'critical' names 'gpu'"),
        ({"id": ""}, "printable"),
        ({"id": "a\nb"}, "printable"),
        ({"executorch": "latest"}, "a version such as 1.5.1"),
        ({"executorch": 1.5}, "a version such as 1.5.1"),
        ({"free_disk": -1}, "free_disk"),
        ({"quota": True}, "quota"),
        ({"app": {"platform": "ios"}}, "'build' is missing"),
        ({"wants": ["../../etc/x"]}, "not a usable adapter name"),
        ({"holds": ["sha256:12"]}, r"holds\[0\]: expected an object"),
        ({"channels": {"../x": STABLE.to_json()}}, "not a usable channel name"),
        ({"channels": {"stable": {}}}, r"channels\.stable: 'registry' is missing"),
        ({"channels": {"stable": STABLE.to_json() | {"active": {}}}}, r"active: 'release' is missing"),
    ],
)
def test_a_state_that_breaks_a_rule_is_refused_by_name(values, message):
    with pytest.raises(FormatError, match=message):
        DeviceState.from_bytes(edited(**values))


@given(st.binary(max_size=100))
def test_any_bytes_give_a_format_error(data):
    with pytest.raises(FormatError):
        DeviceState.from_bytes(data)
