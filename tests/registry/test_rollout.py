"""Rollout arithmetic: buckets are uniform and replayable, and every verb moves as few devices as it can."""

import hashlib
import json
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InputError
from registry.manifest import Arm, check_arms
from registry.rollout import (
    NOTHING,
    bucket,
    choose,
    complete,
    halt,
    hold_out,
    percent,
    resume,
    rollback,
    start,
    widen,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "bucket.json").read_text(encoding="utf-8"))
SALT = "8f14e45fceea167a5a36dedd4bea2543"
EDGES = sorted({*range(0, 10_000, 23), 9_999})


def shares(arms):
    return [(arm.release, arm.share_bp) for arm in arms]


def offers(arms, active=None):
    """What every sampled bucket is offered; "keep" when nothing is."""
    return [choose(arms, each, active).release for each in EDGES]


@st.composite
def rollouts(draw, least=2, most=5):
    """Arms of `least` to `most` releases, newest first, all open, with a holdout now and then."""
    count = draw(st.integers(least, most))
    held = draw(st.sampled_from([0, 0, 1, 500, 5_000]))
    cuts = draw(st.lists(st.integers(1, 9_999 - held), min_size=count - 1, max_size=count - 1, unique=True))
    ends = [0, *sorted(cuts), 10_000 - held]
    arms = [Arm(count - i, high - low) for i, (low, high) in enumerate(pairwise(ends))]
    return (*arms, *([Arm(None, held, holdout=True)] if held else []))


def test_buckets_agree_with_the_shared_vectors():
    for row in VECTORS["buckets"]:
        assert bucket(row["salt"], row["device"]) == row["bucket"]


def test_choices_agree_with_the_shared_vectors():
    for group in VECTORS["choices"]:
        arms = tuple(Arm(**arm) for arm in group["arms"])
        for case in group["cases"]:
            assert choose(arms, case["bucket"], case["active"]).release == case["release"], case


def test_the_bucket_is_the_three_line_formula():
    digest = hashlib.sha256(b"salt:device").digest()
    number = struct.unpack(">I", digest[:4])[0]
    assert bucket("salt", "device") == number % 10_000


def test_buckets_of_100000_devices_are_uniform_and_other_salts_are_independent():
    counts, joint = [0] * 100, [0] * 100
    for number in range(100_000):
        first, second = bucket(SALT, f"device-{number}"), bucket("0" * 32, f"device-{number}")
        counts[first // 100] += 1
        joint[first // 1000 * 10 + second // 1000] += 1
    # chi-square with 99 degrees of freedom: above 149 once in a thousand uniform samples
    for observed in (counts, joint):
        assert sum((count - 1000) ** 2 / 1000 for count in observed) < 149


def test_a_new_release_takes_from_the_nearest_arms_and_retires_the_empty_ones():
    arms = start(NOTHING, 1, 1000)
    assert shares(arms) == [(1, 1000), (None, 9000)]
    arms = start(arms, 2, 500)
    assert shares(arms) == [(2, 500), (1, 500), (None, 9000)]
    assert shares(start(arms, 3, 800)) == [(3, 800), (1, 200), (None, 9000)]
    assert shares(start(arms, 3, 10_000)) == [(3, 10_000)]


def test_widening_grows_an_arm_in_the_middle_without_touching_those_in_front():
    arms = (Arm(3, 1000), Arm(2, 2000), Arm(1, 7000))
    assert shares(widen(arms, 2, 4000)) == [(3, 1000), (2, 4000), (1, 5000)]
    assert shares(widen(arms, 3, 5000)) == [(3, 5000), (1, 5000)]


@given(rollouts(), st.data())
def test_widening_moves_nobody_but_entrants(arms, data):
    index = data.draw(st.integers(0, len([arm for arm in arms if arm.release]) - 1))
    arm = arms[index]
    most = arm.share_bp + sum(each.share_bp for each in arms[index + 1 :] if not each.holdout)
    share = data.draw(st.integers(arm.share_bp, most))
    after = widen(arms, arm.release, share)
    check_arms(after)
    moved = [(old, new) for old, new in zip(offers(arms), offers(after), strict=True) if old != new]
    assert all(new == arm.release for _, new in moved)
    assert sum(each.share_bp for each in after if each.release == arm.release) == share


@given(rollouts(most=4), st.data())
def test_starting_moves_nobody_but_entrants_and_never_the_holdout(arms, data):
    free = 10_000 - sum(arm.share_bp for arm in arms if arm.holdout)
    after = start(arms, 99, data.draw(st.integers(1, free)))
    check_arms(after)
    assert {new for old, new in zip(offers(arms), offers(after), strict=True) if old != new} <= {99}
    assert [arm for arm in after if arm.holdout] == [arm for arm in arms if arm.holdout]


@given(rollouts())
def test_completing_gives_the_newest_to_all_but_the_holdout(arms):
    after = complete(arms)
    assert after[0] == Arm(arms[0].release, sum(arm.share_bp for arm in arms if not arm.holdout))
    assert after[1:] == tuple(arm for arm in arms if arm.holdout)


@given(rollouts(), st.data())
def test_rolling_back_moves_only_devices_of_withdrawn_releases(arms, data):
    target = data.draw(st.integers(1, arms[0].release - 1))
    after = rollback(arms, target)
    check_arms(after)
    for old, new in zip(offers(arms), offers(after), strict=True):
        assert new == (target if old is not None and old > target else old)


@given(rollouts(), st.data())
def test_halting_keeps_runners_and_sends_others_on_and_resuming_undoes_it(arms, data):
    release = data.draw(st.sampled_from([arm.release for arm in arms if arm.release]))
    halted = halt(arms, release)
    assert offers(halted, active=release) == offers(arms, active=release)
    assert release not in offers(halted)
    unmoved = [(old, new) for old, new in zip(offers(arms), offers(halted), strict=True) if old != release]
    assert all(old == new for old, new in unmoved)
    assert resume(halted, release) == arms


def test_a_halted_arm_sends_other_devices_to_the_next_open_arm_and_to_nothing_when_there_is_none():
    arms = halt(halt((Arm(3, 1000), Arm(2, 2000), Arm(1, 7000)), 3), 2)
    assert choose(arms, 0, None).release == 1
    assert choose(arms, 0, 2).release == 2
    stuck = choose(halt(arms, 1), 0, None)
    assert (stuck.release, stuck.arm) == (None, None)
    assert "halted" in stuck.reason


def test_rollback_to_a_release_without_an_arm_takes_all_releases_but_not_the_remainder():
    assert shares(rollback((Arm(3, 1000), Arm(2, 9000)), 1)) == [(1, 10_000)]
    arms = (Arm(3, 1000), Arm(2, 2000), Arm(None, 6000), Arm(None, 1000, holdout=True))
    assert shares(rollback(arms, 1)) == [(1, 3000), (None, 6000), (None, 1000)]


def test_a_rolled_back_release_is_open_even_if_it_was_halted():
    arms = halt((Arm(3, 1000), Arm(2, 9000)), 2)
    assert rollback(arms, 2) == (Arm(2, 10_000),)


def test_a_holdout_takes_the_last_buckets_and_gives_them_back():
    arms = start(start(NOTHING, 1, 10_000), 2, 1000)
    held = hold_out(arms, 500)
    assert shares(held) == [(2, 1000), (1, 8500), (None, 500)]
    assert choose(held, 9500, 1).release is None
    assert "held out" in choose(held, 9500, 1).reason
    assert shares(hold_out(held, 9_500)) == [(2, 500), (None, 9500)]
    assert hold_out(held, 0) == arms
    assert hold_out(hold_out(held, 300), 500) == held


def test_the_remainder_of_a_first_release_is_taken_and_the_holdout_behind_it_is_not():
    arms = hold_out(start(NOTHING, 1, 1000), 500)
    assert shares(arms) == [(1, 1000), (None, 8500), (None, 500)]
    assert shares(complete(arms)) == [(1, 9500), (None, 500)]
    with pytest.raises(InputError, match=r"0\.01 % more than the other arms can give"):
        widen(arms, 1, 9501)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda arms: start(arms, 2, 500), "release 2 is being rolled out already"),
        (lambda arms: start(arms, 3, 0), "a share is 0.01 % to 100 %, not 0 %"),
        (lambda arms: start(arms, 3, 10_001), "not 100.01 %"),
        (lambda arms: widen(arms, 2, 999), "has 10 % and cannot shrink to 9.99 %"),
        (lambda arms: widen(arms, 9, 999), "release 9 is not being rolled out"),
        (lambda arms: widen(halt(arms, 2), 2, 2000), "release 2 is halted"),
        (lambda arms: complete(halt(arms, 2)), "release 2 is halted"),
        (lambda _: complete(NOTHING), "no release is being rolled out"),
        (lambda _: rollback(NOTHING, 1), "no release is being rolled out"),
        (lambda arms: rollback(arms, 2), "newest one already"),
        (lambda arms: hold_out(arms, 10_000), "a holdout is 0 % to under 100 %"),
    ],
)
def test_a_verb_that_cannot_be_done_says_why(attempt, message):
    with pytest.raises(InputError) as caught:
        attempt((Arm(2, 1000), Arm(1, 9000)))
    assert message in caught.value.message


@given(st.integers(0, 10_000))
def test_percent_is_short_and_exact(share):
    assert round(float(percent(share).removesuffix(" %")) * 100) == share
