"""`ptdock keys`, `site publish` and `channel advance`, as people type them."""

import json
import shutil
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from registry.digest import Digest
from registry.signing import light
from registry.signing.keys import file_uri, generate, write_private
from tests.command_line import answer, ptdock, refusal
from tests.registry.live import DAY, live


@pytest.fixture
def shop(stocked_home, tmp_path, pair):
    made = live(stocked_home, tmp_path / "home", pair)
    made.registry.create_release("stable", ["pirate@1.0.0"])
    return made


@pytest.fixture
def home(shop) -> Path:
    return shop.registry.home


@pytest.fixture
def word(tmp_path) -> Path:
    path = tmp_path / "word"
    path.write_text("correct horse\n")
    return path


def initialised(home, tmp_path, word, *more):
    return answer(home, "keys", "init", "--to", tmp_path / "safe", "--passphrase-file", word, *more)


def test_the_list_names_the_root_and_what_apps_are_built_with(home):
    listed = answer(home, "keys", "list")
    assert listed["development"] is True
    assert listed["fingerprint"] == str(Digest.of(Path(listed["root"]).read_bytes()))
    assert [role["role"] for role in listed["roles"]] == ["root", "targets", "snapshot", "timestamp", "light"]
    served = home / "site" / "targets" / "v1"
    light.verify(
        listed["light"].encode(), (served / "stable.json").read_bytes(), (served / "stable.json.sig").read_bytes()
    )
    text = ptdock(home, "keys", "list").stdout
    assert "development keys: for this machine only" in text
    assert listed["light"] in text


def test_real_keys_are_made_apart_and_sign_the_site(home, shop, tmp_path, word):
    made = initialised(home, tmp_path, word, "--count", 2, "--threshold", 2)
    assert (made["development"], made["root_version"]) == (False, 2)
    assert sorted(made["root_keys"]) == sorted(str(path) for path in (tmp_path / "safe").iterdir())
    assert shop.active() == 1
    error = refusal(home, "keys", "init", "--to", tmp_path / "safe", "--passphrase-file", word, code=6)
    assert "keys rotate" in error["hint"]
    assert [key["uri"] for key in answer(home, "keys", "list")["roles"][0]["keys"]] == [None, None]


def test_a_passphrase_comes_from_the_environment_too_and_is_asked_for_by_name(home, tmp_path):
    error = refusal(home, "keys", "init", "--to", tmp_path / "safe", code=2)
    assert "PTDOCK_ROOT_PASSPHRASE" in error["hint"]
    done = ptdock(home, "keys", "init", "--to", tmp_path / "safe", env={"PTDOCK_ROOT_PASSPHRASE": "correct horse"})
    assert done.exit_code == 0
    assert "apart from this machine" in done.stdout
    empty = ptdock(home, "keys", "init", "--to", tmp_path, "--passphrase-file", "-", input="\n")
    assert (empty.exit_code, "is empty" in empty.stderr) == (2, True)


def test_rotating_needs_the_root_keys_and_their_passphrase(home, shop, tmp_path, word):
    made = initialised(home, tmp_path, word)
    (key,) = made["root_keys"]
    error = refusal(home, "keys", "rotate", "timestamp", code=2)
    assert "--root-key FILE" in error["message"]
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    error = refusal(home, "keys", "rotate", "timestamp", "--root-key", key, "--passphrase-file", wrong, code=2)
    assert "does not open" in error["message"]
    chosen = ("--root-key", key, "--passphrase-file", word)
    after = answer(home, "keys", "rotate", "timestamp", "light", *chosen)
    assert after["root_version"] == 3
    changed = [role["role"] for role, old in zip(after["roles"], made["roles"], strict=True) if role != old]
    assert changed == ["timestamp", "light"]
    assert answer(home, "keys", "renew", *chosen)["root_version"] == 4
    assert shop.active() == 1


def test_a_new_root_needs_as_many_signatures_as_the_old_one_and_a_refused_one_leaves_no_keys(home, tmp_path, word):
    keys = initialised(home, tmp_path, word, "--count", 3, "--threshold", 2)["root_keys"]
    new = ("--to", tmp_path / "new", "--passphrase-file", word)
    error = refusal(home, "keys", "rotate", "root", "--root-key", keys[0], *new, code=7)
    assert "too few" in error["message"]
    assert list((tmp_path / "new").iterdir()) == []
    answer(home, "keys", "rotate", "root", "--root-key", keys[0], "--root-key", keys[2], *new)
    root = answer(home, "keys", "list")["roles"][0]
    assert (root["threshold"], len(root["keys"]), len(list((tmp_path / "new").iterdir()))) == (2, 3, 3)


def test_a_lost_online_key_is_told_with_what_takes_its_place(home, tmp_path):
    for path in (home / "keys" / "online").glob("timestamp-*"):
        path.unlink()
    error = refusal(home, "release", "halt", "--channel", "stable", code=5)
    assert "keys rotate" in error["hint"]
    answer(home, "keys", "rotate", "timestamp")
    assert answer(home, "channel", "show", "stable")["arms"][0]["state"] == "halted"
    assert answer(home, "site", "publish", tmp_path / "www")["written"]


@pytest.mark.parametrize(
    "name", ["keys.json", "metadata/1.root.json", "metadata/timestamp.json", "metadata/1.targets.json"]
)
def test_damaged_keys_are_told_with_where_they_are(home, name):
    (home / "keys" / name).write_text("garbage")
    error = refusal(home, "release", "halt", "--channel", "stable", code=7)
    assert f"{home / 'keys'} is damaged" in error["message"]
    assert f"restore {home / 'keys'} from a backup" in error["hint"]


def test_the_root_itself_is_rotated_to_another_place(home, shop, tmp_path, word):
    (key,) = initialised(home, tmp_path, word)["root_keys"]
    chosen = ("--root-key", key, "--passphrase-file", word)
    assert "--to DIR" in refusal(home, "keys", "rotate", "root", *chosen, code=2)["message"]
    after = answer(home, "keys", "rotate", "root", "snapshot", *chosen, "--to", tmp_path / "new")
    (fresh,) = after["root_keys"]
    assert (after["root_version"], Path(fresh).parent) == (4, tmp_path / "new")
    error = refusal(home, "keys", "renew", *chosen, code=7)
    assert "too few" in error["message"]
    assert answer(home, "keys", "renew", "--root-key", fresh, "--passphrase-file", word)["root_version"] == 5
    assert shop.active() == 1


def test_a_key_may_live_elsewhere(home, shop, tmp_path, word):
    private, public = generate("timestamp")
    write_private(tmp_path / "hsm.pem", private, None)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(pem)
    uri = file_uri(str(tmp_path / "hsm.pem"))
    made = initialised(home, tmp_path, word, "--signer", "timestamp", uri, tmp_path / "public.pem")
    assert made["roles"][3]["keys"] == [{"id": public.keyid, "uri": uri}]
    assert shop.active() == 1


def test_the_status_warns_with_exit_code_3(home):
    done = ptdock(home, "keys", "status", "--json")
    assert (done.exit_code, json.loads(done.stdout)["warn"]) == (0, False)
    done = ptdock(home, "keys", "status", "--warn-days", 60, "--json")
    found = {row["role"]: row for row in json.loads(done.stdout)["roles"]}
    assert done.exit_code == 3
    assert {role for role, row in found.items() if row["warn"]} == {"timestamp", "manifest stable"}
    assert 29 < found["timestamp"]["days_left"] <= 30
    assert "soon" in ptdock(home, "keys", "status", "--warn-days", 60).stdout


def test_refreshing_issues_what_is_past_half_of_its_life(home, shop):
    assert answer(home, "keys", "refresh") == {"channels": [], "written": [], "removed": []}
    shop.clock.now = time.time() - 20 * DAY
    shop.registry.create_release("stable", ["json@1.0.0"])
    done = answer(home, "keys", "refresh")
    assert done["channels"] == ["stable"]
    assert "targets/v1/stable.json" in done["written"]
    assert answer(home, "manifest", "stable")["sequence"] == 3
    assert ptdock(home, "keys", "refresh").stdout == "no manifest is past half of its life; 0 files written\n"


def test_a_site_is_published_to_a_directory(home, shop, tmp_path):
    text = ptdock(home, "site", "publish", tmp_path / "first").stdout
    assert "wrote  metadata/timestamp.json\n" in text
    assert "blobs written, 0 removed" in text
    published = answer(home, "site", "publish", tmp_path / "www")
    assert published["written"][-1] == "metadata/timestamp.json"
    assert answer(home, "site", "publish", tmp_path / "www")["written"] == []
    assert ptdock(home, "site", "publish", tmp_path / "www").stdout == f"{tmp_path / 'www'} is up to date\n"
    assert shop.active(site=tmp_path / "www") == 1
    assert "cannot publish to ftp" in refusal(home, "site", "publish", "ftp://x/y", code=2)["message"]


def test_a_bucket_needs_real_keys(home):
    error = refusal(home, "site", "publish", "s3://bucket/site", code=6)
    assert "development keys" in error["message"]


def test_a_store_behind_what_is_published_stops_and_advances(home, shop, tmp_path):
    copy = Path(shutil.copytree(home, tmp_path / "backup"))
    shop.registry.create_release("stable", ["json@1.0.0"])
    answer(home, "site", "publish", tmp_path / "www")
    error = refusal(copy, "site", "publish", tmp_path / "www", code=6)
    assert "channel advance" in error["hint"]
    (advanced,) = answer(copy, "channel", "advance", "stable", "--target", tmp_path / "www")
    assert advanced["sequence"] == 3
    assert answer(copy, "site", "publish", tmp_path / "www")["written"]
    done = ptdock(copy, "channel", "advance", "--target", tmp_path / "www")
    assert done.stdout == "no channel is behind what is published\n"
