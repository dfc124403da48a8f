"""Tokens: known by their digest alone, good for their scope, and until they are revoked."""

import sqlite3

import pytest
from sqlalchemy import text

from registry.access import SCOPES, Token, allows
from registry.errors import Conflict, InputError, NotFound


@pytest.fixture
def tokens(place):
    return place.init().tokens()


def test_a_token_is_found_by_its_text_and_by_nothing_else(tokens):
    made = tokens.create("ci", "publish")

    assert tokens.find(made.text) == made.token == tokens.all()[0]
    for wrong in (
        "",
        "ptdock_",
        made.text[:-1],
        made.text + "x",
        made.text[:-1] + "é",
        made.text.upper(),
        made.token.id,
    ):
        assert tokens.find(wrong) is None
    other = tokens.create("other", "admin")
    mixed = f"ptdock_{made.token.id}_{other.text.rpartition(other.token.id + '_')[2]}"
    assert tokens.find(mixed) is None


def test_a_revoked_token_is_found_no_more_and_its_name_is_never_used_again(tokens):
    made = tokens.create("ci", "publish")

    revoked = tokens.revoke("ci")
    assert revoked.revoked is not None
    assert tokens.find(made.text) is None
    assert tokens.revoke("ci") == revoked
    with pytest.raises(Conflict):
        tokens.create("ci", "publish")


def test_the_secret_stands_nowhere_in_the_registry(tmp_path):
    from registry.service import Registry

    registry = Registry.init(tmp_path / "home", actor="alice")
    made = registry.tokens().create("ci", "publish")
    registry.tokens().find(made.text)
    registry.database.close()
    secret = made.text.rpartition("_")[2]

    with sqlite3.connect(tmp_path / "home" / "registry.db") as database:
        assert secret not in "\n".join(database.iterdump())
    assert secret not in repr(made)
    event = registry.events(1)[0]
    assert (event.action, event.subject, event.actor) == ("token.create", "token ci", "alice")


def test_names_and_scopes_are_checked(tokens):
    with pytest.raises(InputError):
        tokens.create("No Name", "publish")
    with pytest.raises(InputError, match="scope"):
        tokens.create("ci", "everything")
    with pytest.raises(NotFound):
        tokens.revoke("nobody")
    assert tokens.all() == ()


def test_admin_may_do_all_and_the_others_their_own():
    assert [[allows(scope, wanted) for wanted in SCOPES] for scope in SCOPES] == [
        [True, False, False],
        [False, True, False],
        [True, True, True],
    ]


def test_what_a_token_is_cannot_be_changed(tokens, place):
    tokens.create("ci", "publish")

    for statement in ("UPDATE tokens SET scope = 'admin'", "UPDATE tokens SET digest = name", "DELETE FROM tokens"):
        with pytest.raises(Conflict, match="tokens is immutable"), place.database.write() as session:
            session.execute(text(statement))
    assert isinstance(tokens.all()[0], Token)
    assert tokens.all()[0].scope == "publish"
