"""What devices report: codes of offered releases, each id once; nothing that tells who they are, nothing that acts."""

import json
import subprocess
import sys

import pytest

from device.health import send, watched
from device.installed import locate
from device.result import Options
from device.source import open_source
from device.sync import sync
from registry.errors import InputError, IntegrityError, PtdockError, Unavailable
from registry.health import CODES, anonymous_id
from registry.service import Registry
from tests.server.conftest import serving

DYING = """
import os, sys
from pathlib import Path
from device.health import watched
from device.installed import locate
phone = Path(sys.argv[1])
with watched(phone, locate(phone, "pirate")):
    os.abort()
"""
REPORT = {"channel": "stable", "release": 1, "code": "activated"}


def reports(who: str, *said: dict[str, object]) -> dict[str, object]:
    return {"schema": 1, "id": who * 32, "reports": list(said)}


@pytest.fixture
def reporting(home):
    """A server of its own, whose counts nobody else touches, and a token that may ask for them."""
    with serving(home) as running:
        yield running, {"Authorization": f"Bearer {Registry.open(home).tokens().create('ann', 'publish').text}"}


def figures(reporting):
    running, token = reporting
    return running.get("/v1/health/stable", **token).json


def test_reports_are_counted_per_arm_and_each_id_once(reporting):
    running, _ = reporting
    for who in ("a", "b", "a"):
        assert running.post("/v1/health", reports(who, REPORT)).status == 204
    running.post("/v1/health", reports("c", {**REPORT, "code": "digest"}, {**REPORT, "code": "crash"}))

    assert figures(reporting) == {
        "channel": "stable",
        "arms": [{"release": 1, "share_bp": 10_000, "reports": {"activated": 2, "crash": 1, "digest": 1}}],
    }
    metrics = running.get("/metrics").body.decode()
    assert 'ptdock_device_reports_total{channel="stable",code="activated",release="1"} 2.0' in metrics


def test_what_is_of_no_offered_release_is_passed_over(reporting):
    running, _ = reporting
    said = reports("a", {**REPORT, "release": 7}, {**REPORT, "channel": "nope"}, {**REPORT, "code": "repaired"})
    assert running.post("/v1/health", said).status == 204
    assert figures(reporting)["arms"][0]["reports"] == {"repaired": 1}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        ({}, 422),
        (reports("a"), 422),
        (reports("A", REPORT), 422),
        (reports("a", {**REPORT, "code": "my phone is on fire"}), 422),
        (reports("a", {**REPORT, "release": "1"}), 422),
        (reports("a", {**REPORT, "model": "Pixel"}), 422),
        (reports("a", *[REPORT] * 101), 422),
        (b" " * 70_000, 413),
    ],
)
def test_anything_else_is_refused(server, body, status):
    assert server.post("/v1/health", body).status == status


def test_figures_need_a_token_and_a_channel(reporting):
    running, token = reporting
    assert running.get("/v1/health/stable").status == 401
    assert running.get("/v1/health/nope", **token).status == 404


def test_ids_change_every_day_and_differ_between_devices():
    day = 86_400
    assert anonymous_id(b"one", 10.0) == anonymous_id(b"one", day - 1.0)
    assert len({anonymous_id(secret, at) for secret in (b"one", b"two") for at in (0, day, 2 * day)}) == 6


@pytest.fixture
def phone(reporting, tmp_path):
    """A device that synced from the server."""
    running, _ = reporting
    sync(open_source(running.address), ["stable"], tmp_path / "phone", Options())
    return tmp_path / "phone"


def test_a_sync_is_reported_with_nothing_but_codes(reporting, phone):
    running, _ = reporting
    before = len(running.log)
    assert send(running.address, phone, sync(open_source(running.address), ["stable"], phone))
    assert figures(reporting)["arms"][0]["reports"] == {"unchanged": 1}
    assert json.loads((phone / "state.json").read_text())["id"] not in json.dumps(running.log[before:])


def test_a_failure_is_reported_for_the_release_that_was_to_become_active(reporting, phone, home):
    running, _ = reporting
    registry = Registry.open(home)
    registry.create_release("stable", ["hidden@1.0.0"])
    digest = registry.build("hidden@1.0.0").parts["wire"].digest
    (home / "site" / "blobs" / "sha256" / digest.hex).chmod(0o600)
    (home / "site" / "blobs" / "sha256" / digest.hex).write_bytes(b"other")

    with pytest.raises(PtdockError) as failed:
        sync(open_source(running.address), ["stable"], phone)
    assert send(running.address, phone, failed.value)

    (arm,) = figures(reporting)["arms"]
    assert arm["release"] == 2
    assert set(arm["reports"]) <= CODES - {"activated"}
    assert sum(arm["reports"].values()) == 1


def test_a_load_that_failed_and_a_process_that_died_are_told_with_the_next_report_and_once(reporting, phone):
    running, _ = reporting
    installed = locate(phone, "pirate")
    with pytest.raises(IntegrityError), watched(phone, installed):
        raise IntegrityError("the runtime says 0x20")
    with pytest.raises(InputError), watched(phone, installed):
        raise InputError("the prompt is too long")
    assert subprocess.run([sys.executable, "-c", DYING, phone], check=False, capture_output=True).returncode != 0
    with watched(phone, installed):  # still running: not dead
        send(running.address, phone, Unavailable("no channels in it"))
    send(running.address, phone, Unavailable("no channels in it"))

    assert figures(reporting)["arms"][0]["reports"] == {"load": 1, "crash": 1}
    assert list((phone / "running").iterdir()) == []


def test_a_server_that_does_not_hear_holds_nothing_up(phone):
    heard = []
    result = Unavailable("x", channels=[{"channel": "stable", "offered": 1, "release": None, "code": "digest"}])
    assert not send("http://127.0.0.1:1", phone, result, heard.append)
    assert "was not sent" in heard[0]
    assert (phone / "health.key").stat().st_mode & 0o777 == 0o600


def test_the_command_line_reports_when_it_is_told_to(reporting, tmp_path):
    running, _ = reporting
    command = [sys.executable, "-m", "cli", "device", "sync", running.address, "stable", "--dir", tmp_path / "phone"]
    subprocess.run([*command, "--quiet"], check=True, capture_output=True)
    assert figures(reporting)["arms"][0]["reports"] == {}
    subprocess.run([*command, "--quiet", "--report"], check=True, capture_output=True)
    assert figures(reporting)["arms"][0]["reports"] == {"unchanged": 1}
