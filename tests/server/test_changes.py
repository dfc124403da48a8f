"""The verbs over HTTP: without a token nothing changes, with one what its scope allows, and the audit log names it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from console.remote import Form, Server
from registry import canonical
from registry.errors import AdapterRefused, Conflict, InputError, NotFound, Unavailable
from registry.service import Registry
from server.settings import Settings
from tests.command_line import answer, refusal
from tests.server.conftest import write_adapter
from tests.server.test_api import problem
from tests.test_without_torch import HIDE

VERBS = ("releases", "widen", "halt", "resume", "complete", "rollback")


class Desk:
    """A running server of a store that may be changed, and a token for each scope."""

    def __init__(self, home, running):
        self.home = home
        self.running = running
        self.registry = Registry.open(home)
        self.tokens = {
            scope: self.registry.tokens().create(scope, scope).text for scope in ("publish", "release", "admin")
        }

    def post(self, path, document, scope="release", **headers):
        return self.running.post(path, document, Authorization=f"Bearer {self.tokens[scope]}", **headers)

    def verb(self, verb, scope="release", **given):
        return self.post(f"/v1/channels/stable/{verb}", given, scope)

    def server(self, scope="publish"):
        return Server(self.running.address, self.tokens[scope])

    def form(self, options, *files, scope="publish", **headers):
        """A form as it stands: (file name, bytes) each."""
        body = b"".join(
            b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (key, more, data)
            for key, more, data in [
                (b"options", b"", options),
                *((b"file", b'; filename="%s"' % name.encode(), data) for name, data in files),
            ]
        )
        headers = {"Content_Type": "multipart/form-data; boundary=x", **headers}
        return self.post("/v1/adapters/poet/versions", body + b"--x--\r\n", scope, **headers)


@pytest.fixture
def desk(home, serve):
    with serve(home) as running:
        yield Desk(home, running)


def test_without_a_token_nothing_changes(desk):
    before = desk.registry.events(1)

    for path in (*(f"/v1/channels/stable/{verb}" for verb in VERBS), "/v1/adapters/poet/versions"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
            reply = desk.running.post(path, {}, **headers)
            assert "token" in problem(reply, 401)["detail"]
            assert reply.headers["www-authenticate"].startswith("Bearer")
    problem(desk.running.get("/v1/adapters/pirate"), 401)
    assert desk.registry.events(1) == before


def test_a_token_of_another_scope_or_a_revoked_one_is_refused(desk):
    problem(desk.verb("halt", "publish"), 403)
    problem(desk.form(b"{}", scope="release"), 403)
    desk.registry.tokens().revoke("release")
    problem(desk.verb("halt"), 401)
    assert desk.verb("halt", "admin").status == 200


def test_an_adapter_published_over_http_is_the_one_published_here(desk, made):
    local = Registry.open(desk.home).build("pirate@1.0.0")
    document = desk.server().publish("buccaneer", made / "pirate", {"foundation": "plain", "lineage": {"run": "7"}})
    build = desk.registry.build("buccaneer@1.0.0")

    assert document["digest"] == str(local.file.digest) == str(build.file.digest)
    assert (document["outcome"], document["version"], document["relinked"]) == ("version", "1.0.0", True)
    assert document["lineage"]["run"] == "7"
    assert desk.registry.events(1)[0].actor == "token:publish"
    assert not list(desk.home.glob("work-*"))
    again = desk.server().publish("buccaneer", made / "pirate", {"foundation": "plain"})
    assert again["outcome"] == "unchanged"


def test_the_command_line_publishes_to_a_server_without_a_store_of_its_own(desk, made, tmp_path):
    (tmp_path / "token").write_text(f"{desk.tokens['publish']}\n")
    words = ("adapter", "publish", made / "json", "--foundation", "plain", "--name", "poet", "--server")
    words = (*words, desk.running.address, "--token-file", tmp_path / "token")

    document = answer(tmp_path / "no-store", *words, "--meta", "run=9")
    assert document["digest"] == str(desk.registry.build("poet@1.0.0").file.digest)
    assert document["lineage"]["run"] == "9"
    assert not (tmp_path / "no-store").exists()
    assert refusal(None, *words, "--prove", code=2)["code"] == "UsageError"


def test_what_the_gate_refuses_is_refused_with_all_findings_and_without_paths(desk, made, tmp_path):
    bad = write_adapter(tmp_path / "bad", 3)
    config = json.loads((bad / "adapter_config.json").read_text())
    (bad / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["nowhere"]}))

    with pytest.raises(AdapterRefused) as caught:
        desk.server().publish("bad", bad, {"foundation": "plain"})
    assert caught.value.values["findings"]
    assert str(desk.home) not in json.dumps(caught.value.values)
    with pytest.raises(NotFound):
        desk.server().publish("bad", made / "json", {"foundation": "nowhere"})
    with pytest.raises(Conflict):
        desk.server().publish("pirate", made / "json", {"foundation": "plain", "version": "1.0.0"})
    with pytest.raises(InputError):
        desk.server().publish("Bad Name", made / "json", {"foundation": "plain"})
    assert "bad" not in desk.registry.adapters()


@pytest.mark.parametrize(
    ("options", "name", "status", "says"),
    [
        (b'{"foundation": "plain"}', "../escape.json", 422, "escape"),
        (b'{"foundation": "plain"}', "/etc/passwd", 422, "passwd"),
        (b'{"foundation": "plain"}', ".hidden", 422, "hidden"),
        (b'{"foundation": "plain"}', "a/b", 422, "a/b"),
        (b'{"foundation": "plain"}', "", 422, "name"),
        (b'{"foundation": 7}', "a.json", 422, "foundation"),
        (b'{"foundation": "plain", "allow_pickle": true}', "a.json", 422, "allow_pickle"),
        (b"{", "a.json", 400, "not JSON"),
        (b'{"foundation": "plain"}', "a.json", 422, "AdapterRefused"),
    ],
)
def test_a_form_that_is_none_or_names_paths_is_refused_and_leaves_nothing(desk, options, name, status, says):
    reply = desk.form(options, (name, b"{}"))

    found = problem(reply, status)
    assert says in json.dumps(found)
    assert not list(desk.home.glob("work-*"))
    assert "poet" not in desk.registry.adapters()


def test_a_file_that_stands_twice_is_refused(desk):
    twice = [("adapter_config.json", b"{}")] * 2
    assert "twice" in problem(desk.form(b'{"foundation": "plain"}', *twice), 422)["detail"]


def test_an_upload_beyond_the_limit_is_refused_and_leaves_nothing(home, serve, made):
    with serve(home, Settings(upload=2000)) as running:
        desk = Desk(home, running)
        with pytest.raises(InputError, match="2000"):
            desk.server().publish("big", made / "json", {"foundation": "plain"})
        assert problem(desk.form(b"{}", ("a.json", b" " * 3000)), 413)
    assert not list(home.glob("work-*"))


def test_a_token_that_publishes_too_often_is_told_when_to_come_again(home, serve):
    with serve(home, Settings(publishes=2)) as running:
        desk = Desk(home, running)
        first = [desk.form(b"{").status for _ in range(2)]
        reply = desk.form(b"{")
        assert (first, reply.status) == ([400, 400], 429)
        assert 1 <= int(reply.headers["retry-after"]) <= 61
        assert desk.form(b"{", scope="admin").status == 400


def test_a_server_without_torch_refuses_a_new_structure_by_name(home, tmp_path):
    odd = write_adapter(tmp_path / "odd", 5, rank=3)
    script = Path(__file__).with_name("without_torch.py")
    program = f"{HIDE}\nimport runpy\nrunpy.run_path({str(script)!r}, run_name='__main__')"
    command = [sys.executable, "-c", program, str(home), str(odd)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "structure not exported yet" in told["message"]
    assert "rank 3" in told["message"] or "r3" in told["message"]
    assert "ptdock template add" in told["hint"]


def test_a_channel_is_moved_by_every_verb_as_the_token(desk):
    made = desk.verb("releases", adapters=["pirate@1.0.0"], share_bp=1000)
    assert made.status == 200, made.body
    assert [arm["share_bp"] for arm in made.json["arms"]] == [1000, 9000]
    assert [arm["share_bp"] for arm in desk.verb("widen", share_bp=5000).json["arms"]] == [5000, 5000]
    assert desk.verb("halt").json["arms"][0]["state"] == "halted"
    assert desk.verb("resume").json["arms"][0]["state"] == "open"
    assert [arm["share_bp"] for arm in desk.verb("complete").json["arms"]] == [10_000]
    assert desk.verb("rollback").json["arms"][0]["release"] == 1

    manifest = desk.running.get("/targets/v1/stable.json").json
    assert manifest["sequence"] == Registry.open(desk.home).channel("stable").sequence == 7
    assert {event.actor for event in desk.registry.events(6)} == {"token:release"}


def test_verbs_are_refused_in_the_facades_words(desk):
    assert "nothing before" in problem(desk.verb("rollback"), 409)["detail"]
    problem(desk.verb("widen", share_bp=0), 422)
    problem(desk.verb("widen", share_bp=5000, surplus=1), 422)
    problem(desk.verb("releases", adapters=["nobody@1.0.0"]), 404)
    problem(desk.post("/v1/channels/nowhere/halt", {}), 404)
    problem(desk.post("/v1/channels/No%20Name/halt", {}), 422)


def test_any_token_shows_an_adapter_with_its_unreleased_builds(desk):
    token = {"Authorization": f"Bearer {desk.tokens['publish']}"}
    found = desk.running.get("/v1/adapters/hidden", **token).json

    (version,) = found["versions"]
    assert version["builds"][0]["digest"] == str(desk.registry.build("hidden@1.0.0").file.digest)
    problem(desk.running.get("/v1/adapters/nobody", **token), 404)


def test_the_log_names_the_token_and_never_its_secret(desk):
    desk.verb("halt")

    assert desk.running.log[-1]["token"] == "release"  # noqa: S105 - its name
    assert desk.tokens["release"].rpartition("_")[2] not in json.dumps(desk.running.log)


def test_a_token_goes_by_https_or_to_this_machine_alone(made):
    with pytest.raises(InputError, match="in the clear"):
        Server("http://ptdock.example.com", "x")
    for address in ("ftp://x", "https://", "https://user@x", "https://x?y"):
        with pytest.raises(InputError, match="not a server"):
            Server(address, "x")
    with pytest.raises(Unavailable):
        Server("http://127.0.0.1:1", "x").publish("poet", made / "json", {})


def test_a_form_is_as_long_as_it_says(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100)
    form = Form({"a": tmp_path / "a"}, canonical.dumps({}))

    assert len(b"".join(form.chunks())) == int(form.headers["Content-Length"])


def test_tokens_are_made_listed_and_revoked_on_the_command_line(home):
    made = answer(home, "token", "create", "--scope", "publish", "--name", "ci")
    assert Registry.open(home).tokens().find(made["token"]).name == "ci"
    (listed,) = answer(home, "token", "list")
    assert listed == {key: value for key, value in made.items() if key != "token"}
    assert answer(home, "token", "revoke", "ci")["revoked"] is not None
    assert Registry.open(home).tokens().find(made["token"]) is None
    assert refusal(home, "token", "create", "--scope", "publish", "--name", "ci", code=6)
