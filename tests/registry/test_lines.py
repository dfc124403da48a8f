"""What a line requires of a device, by the programs in it."""

import pytest

from registry.artifacts import Base, Build, Line, Runtime, Template
from registry.digest import Descriptor, Digest
from registry.errors import Conflict
from registry.lines import Parts, write_line

FILE = Descriptor.of(b"foundation")
BASE = Base(Digest.of(b"base"), Descriptor.of(b"tensors"), {}, "/checkpoint")


def template(program: bytes, minor: int, *, rank: int = 4, context: int = 512) -> Template:
    """The template of a program that ExecuTorch 1.`minor` made; of rank 0 a base program."""
    return Template(
        digest=Digest.of(program),
        foundation=FILE.digest,
        structure={"schema": 1, "modules": {"q_proj": {"lora": rank}} if rank else {}, "equal": []},
        context=context,
        graph=1,
        executorch=f"1.{minor}.0",
        hollow=Descriptor.of(program),
        table=Descriptor.of(b"table"),
        program_size=len(program),
        runtime=Runtime((1, minor), (1, minor + 1), ("XnnpackBackend",), ()),
        kv_cache_bytes=0,
    )


def written(templates: list[Template], **builds: bytes):
    """The line of these builds, each through the template of this program."""
    made = {
        name: Build(name, "1.0.0", FILE.digest, Digest.of(through), Descriptor.of(name.encode()), FILE, (), None)
        for name, through in builds.items()
    }
    return write_line(Line(FILE.digest, made), Parts(FILE, tuple(templates), BASE))


def span(line):
    return line.requires.minimum, line.requires.guaranteed


def test_equal_programs_of_two_versions_run_on_all_that_either_promises():
    line = written(
        [template(b"base", 4, rank=0), template(b"t", 4), template(b"base", 5, rank=0), template(b"t", 5)], a=b"t"
    )
    assert span(line) == ((1, 4), (1, 6))


def test_other_programs_of_a_newer_version_run_on_that_one_and_the_next():
    old, new = [template(b"base", 4, rank=0), template(b"t", 4)], [template(b"base 2", 5, rank=0), template(b"t 2", 5)]
    assert span(written([*old, *new], a=b"t 2")) == ((1, 5), (1, 6))
    assert span(written([*old, *new], a=b"t")) == ((1, 4), (1, 5))


def test_builds_of_neighbouring_versions_meet_on_the_version_that_runs_both():
    templates = [template(b"base", 4, rank=0), template(b"t", 4), template(b"base 2", 5, rank=0), template(b"t 2", 5)]
    assert span(written(templates, a=b"t", b=b"t 2")) == ((1, 5), (1, 5))


def test_builds_that_no_one_version_surely_runs_are_refused_with_the_command_that_helps():
    templates = [template(b"base", 4, rank=0), template(b"t", 4), template(b"base 2", 7, rank=0), template(b"t 2", 7)]
    with pytest.raises(Conflict, match=r"some need 1\.7, others are guaranteed up to 1\.5") as caught:
        written(templates, a=b"t", b=b"t 2")
    assert "ptdock foundation upgrade" in str(caught.value.hint)


def test_the_base_program_is_one_of_the_context_and_the_version_of_the_builds():
    short, long = template(b"512", 5, rank=0), template(b"2048", 5, rank=0, context=2048)
    assert written([short, template(b"t", 5), long], a=b"t").base == short.hollow
    assert written([short, long, template(b"t", 5, context=2048)], a=b"t").base == long.hollow
    assert written([short, long, template(b"t", 6)], a=b"t").base == long.hollow
