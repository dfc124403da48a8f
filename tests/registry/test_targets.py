"""A site in a bucket is the site in a directory, file by file."""

import secrets
from pathlib import Path

import obstore
import pytest

from registry.buckets import open_bucket
from registry.errors import InputError, Unavailable
from registry.signing.ceremony import RootKeys
from registry.site import Directory
from registry.targets import BucketTarget, open_target
from tests.registry.s3 import S3
from tests.registry.stock import Stock, copied


@pytest.fixture
def stock(stocked_home, tmp_path, pair) -> Stock:
    stock = copied(stocked_home, tmp_path / "home", pair)
    stock.registry.create_release("stable", ["pirate@1.0.0"])
    stock.registry.signed_site().init_keys(RootKeys(tmp_path / "safe", b"word"), {})
    return stock


@pytest.fixture
def address(s3_server: S3, monkeypatch) -> str:
    """A prefix that the environment can reach."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://blobs/{secrets.token_hex(8)}"


def in_directory(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def in_bucket(address: str, server: S3) -> dict[str, bytes]:
    objects = open_bucket(address, server.environment).objects
    names = [each["path"] for page in obstore.list(objects) for each in page]
    return {name: bytes(obstore.get(objects, name).bytes()) for name in names}


def test_a_published_bucket_holds_what_a_directory_does(stock, address, s3_server, tmp_path):
    site = stock.registry.signed_site()
    site.publish(open_target(address))
    site.publish(Directory(tmp_path / "site"))

    assert in_bucket(address, s3_server) == in_directory(tmp_path / "site")


def test_publishing_again_writes_nothing(stock, address, s3_server):
    site = stock.registry.signed_site()
    site.publish(open_target(address))
    before = in_bucket(address, s3_server)

    assert site.publish(open_target(address)).written == ()
    assert in_bucket(address, s3_server) == before


def test_what_is_no_longer_offered_goes_and_strangers_stay(address, s3_server):
    target = BucketTarget(open_bucket(address, s3_server.environment))
    target.put("targets/v1/stable.json", b"{}")
    target.put("targets/v1/stable.json.sig", b"sig")

    target.remove("targets/v1/stable.json")
    target.remove("targets/v1/stable.json")

    assert target.names("targets/v1") == ["stable.json.sig"]
    assert target.read("targets/v1/stable.json") is None


def test_a_bucket_that_is_not_there_is_unavailable(moto, monkeypatch):
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(Unavailable, match="there is no such bucket"):
        open_target("s3://absent").put("targets/v1/stable.json", b"{}")


@pytest.mark.parametrize("address", ["gs://bucket/x", "https://host/x", "s3://"])
def test_another_kind_of_target_is_refused(address):
    with pytest.raises(InputError, match="address"):
        open_target(address)
