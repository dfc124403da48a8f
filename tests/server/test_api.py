"""The questions over HTTP: the same answers as the command line's, and refusals that say what is wrong and no more."""

import json
import re
import socket
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry.device_state import DeviceState
from registry.query import planned
from registry.service import Registry
from server.settings import Settings

DEVICE = {"schema": 1, "id": "phone-of-alice", "executorch": "1.5.1", "encodings": ["factors"]}
QUESTION = {"channels": ["stable"], "device": DEVICE}


def problem(reply, status):
    """The problem document of a refusal, which names neither a path nor a program's inside."""
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.json["status"] == status
    assert {"type", "title", "detail"} <= reply.json.keys()
    assert not re.search(rb"Traceback|\.py|/tmp|/home|/root|site-packages|sqlalchemy", reply.body)
    return reply.json


def test_a_plan_over_http_is_the_command_lines(server, offered):
    reply = server.post("/v1/plan", QUESTION)
    registry = Registry.open(offered)
    issued = json.loads(registry.manifest("stable"))["issued"]
    expected = planned(registry, ["stable"], DeviceState.from_bytes(json.dumps(DEVICE).encode()), now=issued)

    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.body == expected.to_bytes()
    assert len(reply.json["download"]) > 5


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not UTF-8"),
        (b'{"channels": ["stable"], "channels": ["stable"], "device": {}}', 400, "stands twice"),
        (b'{"channels": ["stable"], "device": {"id": NaN}}', 400, "NaN"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 422, "object"),
        ({}, 422, "channels"),
        ({"channels": [], "device": DEVICE}, 422, "channels"),
        ({"channels": ["../x"], "device": DEVICE}, 422, "channels.0"),
        ({"channels": "stable", "device": DEVICE}, 422, "channels"),
        ({"channels": ["stable", "stable"], "device": DEVICE}, 422, "two manifests"),
        ({"channels": ["stable"], "device": DEVICE, "surplus": 1}, 422, "surplus"),
        ({"channels": ["stable"], "device": DEVICE, "delete_first": 1}, 422, "delete_first"),
        ({"channels": ["stable"], "device": {}}, 422, "schema"),
        ({"channels": ["stable"], "device": {**DEVICE, "free_disk": True}}, 422, "free_disk"),
        ({"channels": ["stable"], "device": {**DEVICE, "schema": 2}}, 422, "schema 2"),
        ({"channels": ["nowhere"], "device": DEVICE}, 404, "nowhere"),
    ],
)
def test_a_bad_question_is_refused_with_what_is_wrong(server, body, status, says):
    assert says in problem(server.post("/v1/plan", body), status)["detail"]


def test_a_body_must_be_json_and_say_so(server):
    body = json.dumps(QUESTION).encode()

    problem(server.ask("POST", "/v1/plan", body, Content_Type="text/plain"), 415)
    problem(server.ask("POST", "/v1/plan", body), 415)
    problem(server.post("/v1/plan", QUESTION, Content_Encoding="gzip"), 415)
    assert server.post("/v1/plan", QUESTION, Content_Type="application/json; charset=utf-8").status == 200


def test_a_body_beyond_the_limit_is_refused_whether_it_says_so_or_not(offered, serve):
    with serve(offered, Settings(plan=1000)) as running:
        big = {**QUESTION, "device": {**DEVICE, "wants": ["pirate"] * 500}}
        assert "1000" in problem(running.post("/v1/plan", big), 413)["detail"]
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            connection.sendall(
                b"POST /v1/plan HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b" " * 0x400 + b"\r\n"
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(
                        ["channels", "device", "schema", "id", "holds", "wants", "free_disk", "critical", "active"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_body_gets_an_answer_or_a_problem(server, body):
    reply = server.post("/v1/plan", body)

    assert reply.status in {200, 400, 404, 422}
    if reply.status != 200:
        problem(reply, reply.status)


def test_what_does_not_exist_is_a_problem_too(server):
    problem(server.get("/v1/nothing"), 404)
    problem(server.get("/v1/plan"), 405)
    problem(server.get("/healthz/"), 404)
    assert server.get("/v1/plan").headers["allow"] == "POST"


def test_a_sound_server_says_so(server):
    assert server.get("/healthz").json == {"status": "ok"}
    assert server.get("/readyz").json == {"status": "ok"}


def test_a_server_whose_database_is_gone_is_not_ready_and_says_no_more(home, serve):
    with serve(home) as running:
        with sqlite3.connect(home / "registry.db") as database:
            database.execute("DROP TABLE registry")
        assert problem(running.get("/readyz"), 503)["detail"] == "the database does not answer"
        assert running.get("/healthz").status == 200
        assert running.get("/targets/v1/stable.json").status == 200


def test_a_server_whose_store_is_gone_is_not_ready(home, serve):
    with serve(home) as running:
        (home / "blobs").rename(home / "away")
        assert problem(running.get("/readyz"), 503)["detail"] == "the store does not answer"


def test_metrics_count_requests_by_route_and_tell_how_long_keys_are_good(offered, serve):
    with serve(offered) as running:
        manifest = running.get("/targets/v1/stable.json")
        running.get("/targets/v1/stable.json")
        running.get("/private/../path?secret=1")
        running.ask("PROPFIND", "/healthz")
        found = running.get("/metrics")

    lines = dict(line.rsplit(" ", 1) for line in found.body.decode().splitlines() if not line.startswith("#"))
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert lines['ptdock_requests_total{method="GET",route="/targets",status="200"}'] == "2.0"
    assert lines['ptdock_requests_total{method="GET",route="unknown",status="404"}'] == "1.0"
    assert lines['ptdock_requests_total{method="other",route="/healthz",status="405"}'] == "1.0"
    assert float(lines['ptdock_sent_bytes_total{route="/targets"}']) == 2 * len(manifest.body)
    assert float(lines['ptdock_manifest_age_seconds{channel="stable"}']) >= 0
    assert float(lines['ptdock_key_expiry_days{role="timestamp"}']) > 1
    assert "secret" not in found.body.decode()


def test_a_log_line_names_the_route_and_never_a_device_a_query_or_a_path(offered, serve):
    with serve(offered) as running:
        running.post("/v1/plan?id=phone-of-alice", QUESTION)
        running.get("/phone-of-alice")
        plan, unknown = running.log

    assert (plan["method"], plan["route"], plan["status"]) == ("POST", "/v1/plan", 200)
    assert (unknown["route"], unknown["status"]) == ("unknown", 404)
    assert "alice" not in json.dumps(running.log)
    assert str(offered) not in json.dumps(running.log)


def test_a_refusal_is_no_trouble_of_the_servers(offered, serve):
    with serve(offered) as running:
        statuses = [running.post("/v1/plan", body).status for body in (b"", {}, {**QUESTION, "channels": ["nowhere"]})]
        statuses += [running.get(path).status for path in ("/v1/adapters/pirate", "/nothing", "/blobs/x")]

    assert statuses == [400, 422, 404, 401, 404, 404]
    assert [entry for entry in running.log if "trouble" in entry] == []


def test_a_failure_inside_is_told_to_the_log_and_not_to_the_client(home, serve):
    (document,) = [pin["digest"] for pin in json.loads(Registry.open(home).manifest("stable"))["releases"]]
    blob = home / "blobs" / "sha256" / document.removeprefix("sha256:")
    blob.chmod(0o644)
    blob.write_bytes(b"damaged")
    with serve(home) as running:
        told = problem(running.post("/v1/plan", QUESTION), 500)
        entry = running.log[-1]

    assert told["detail"] == "this server failed"
    assert "damaged" in entry["trouble"]


def test_every_path_of_the_openapi_document_is_served(server):
    document = server.get("/openapi.json").json

    assert {"/v1/plan", "/healthz", "/readyz", "/metrics", "/blobs/sha256/{digest}"} <= document["paths"].keys()
    references = set(re.findall(r'"\$ref": ?"#/components/schemas/([a-zA-Z_]+)', json.dumps(document)))
    assert references <= document["components"]["schemas"].keys()
