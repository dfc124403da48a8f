"""The whole chain on a real store: published adapters arrive on a device byte for byte, and run."""

import time

from device.installed import locate
from device.manage import describe, status
from device.run import Chat
from device.source import open_source
from device.store import DeviceStore
from device.sync import Options, sync
from registry.device_state import DeviceState
from registry.service import Registry


def pull(home, phone, **facts):
    options = Options(facts=DeviceState("phone-1", **facts))
    return sync(open_source(Registry.open(home).site), ["stable"], phone, options)


def test_a_device_holds_one_foundation_and_the_published_programs(published, phone):
    result = pull(published, phone)
    registry = Registry.open(published)
    assert result.channels[0].adapters == {"pirate": "1.0.0", "json": "1.0.0"}
    for name in ("pirate", "json"):
        build = registry.build(f"{name}@1.0.0")
        installed = locate(phone, name)
        assert installed.program.digest == build.file.digest
        assert installed.program.path.read_bytes() == registry.blobs.read(build.file.digest)
        assert installed.foundation.digest == registry.foundation("plain").file.digest
    assert status(phone, verify=True).damage == ()
    assert [each.kind for each in result.plan.download].count("foundation") == 1


def test_programs_arrive_as_trained_factors_where_that_is_cheaper(published, phone):
    kinds = {each.kind for each in pull(published, phone).plan.download}
    assert kinds >= {"template", "table", "factors"}
    registry = Registry.open(published)
    parts = registry.build("pirate@1.0.0").parts
    assert parts["wire"].size == 2 * 2 * (4 * 32 + 32 * 4)  # BF16, two layers, A and B
    held = DeviceStore(phone).held()
    assert parts["wire"].digest in held


def test_a_device_without_factors_gets_the_same_programs(published, phone, tmp_path):
    pull(published, phone)
    plain = tmp_path / "plain"
    result = pull(published, plain, encodings=("none",))
    assert "factors" not in {each.kind for each in result.plan.download}
    for name in ("pirate", "json"):
        assert locate(plain, name).program.path.read_bytes() == locate(phone, name).program.path.read_bytes()


def test_the_adapters_and_the_base_answer_in_turn_on_one_foundation(published, phone):
    pull(published, phone)
    answers = {}
    for name in ("pirate", "json", None, "pirate"):
        chat = Chat.open(phone, name)
        tokens = chat.answer("w1 w2 w3", max_new_tokens=6).tokens
        assert answers.setdefault(name, tokens) == tokens
    assert len(set(answers.values())) == 3


def test_the_next_sync_takes_milliseconds_and_fetches_nothing(published, phone):
    pull(published, phone)
    began = time.perf_counter()
    assert pull(published, phone).fetched == 0
    assert time.perf_counter() - began < 1
    assert describe(phone).channels["stable"].active.release == 1
