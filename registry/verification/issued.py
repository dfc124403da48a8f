"""Manifests, all that were ever issued: each against its rows, and its arms against what the log tells of them."""

from __future__ import annotations

from registry import rollout
from registry.audit import Event
from registry.catalog import channels, log, records
from registry.catalog.records import Issued
from registry.documents import Fields
from registry.manifest import Arm, Manifest, ReleasePin
from registry.rollout import NOTHING, Arms
from registry.verification.inspection import Inspection

_UNMOVED = {"adapter.revoke", "channel.advance", "channel.refresh"}  # what issues manifests with the arms of before


def check_manifests(inspection: Inspection) -> None:
    """Every manifest by channel and sequence, for its arms follow from those before it."""
    before: dict[str, Arms] = {}
    for issued in records.manifests(inspection.session):
        if inspection.sound(issued.file):
            with inspection.finding("manifest", _subject(issued)):
                _check_document(inspection, issued)
        with inspection.finding("manifest", _subject(issued)):
            _check_event(inspection, issued, before.get(issued.channel, NOTHING))
        before[issued.channel] = issued.arms


def _subject(issued: Issued) -> str:
    return f"manifest {issued.sequence} of {issued.channel}"


def _check_document(inspection: Inspection, issued: Issued) -> None:
    session = inspection.session
    said = Manifest.from_bytes(inspection.store.read(issued.file.digest))
    told = (said.channel, said.sequence, said.arms, said.issued, said.expires, said.registry, said.log_head)
    row = (issued.channel, issued.sequence, issued.arms, issued.issued, issued.expires, log.identity(session))
    offered = [arm.release for arm in issued.arms if arm.release is not None]
    documents = channels.documents(session, offered)
    pins = tuple(ReleasePin(number, documents[number]) for number in offered if number in documents)
    if told != (*row, issued.log_head) or said.releases != pins:
        inspection.found("manifest", _subject(issued), "its document and its rows differ")
    channel = channels.channel(session, issued.channel) if issued.newest else None
    if channel is not None and offered and channel.salt != said.salt:
        inspection.found("manifest", _subject(issued), "its salt is not the channel's: the next one would move devices")
    if channel is not None:
        missing = {*channels.revoked(session, issued.channel, offered)} - {*said.revoked}
        for digest in sorted(missing):
            inspection.found("manifest", _subject(issued), f"it does not name the revoked build {digest}")


def _check_event(inspection: Inspection, issued: Issued, before: Arms) -> None:
    """The event that a manifest names as the log's head is the one that it was issued for."""
    event = log.event_with(inspection.session, issued.log_head)
    if event is None:
        message = f"the log does not hold the event {issued.log_head} that it names"
        inspection.found("manifest", _subject(issued), message)
        return
    follows = arms_after(event, issued.channel, before)
    if follows is not None and follows != issued.arms:
        inspection.found("manifest", _subject(issued), f"its arms do not follow from event {event.id}, {event.action}")
    if abs(log.seconds(event.at) - issued.issued) > 1:
        inspection.found("manifest", _subject(issued), f"event {event.id}, for which it was issued, is of {event.at}")


def arms_after(event: Event, channel: str, before: Arms) -> Arms | None:
    """The arms of the manifest that an event led to, none for one that leads to no manifest of this channel.

    None for an event of the first versions, which did not say what a release was offered to. Raises FormatError and
    InputError for an event that makes no sense: it was edited.
    """
    after = Fields(event.after if isinstance(event.after, dict) else {}, f"event {event.id}")
    if event.action in _UNMOVED:
        return before
    if event.action == "release.create" and "offer" not in after:
        return None
    if event.action == "release.create":
        offer, number = after.object("offer"), event.subject.removeprefix("release ")
        new = number.isdecimal() and int(number) not in [arm.release for arm in before]
        mine = offer.text("channel") == channel and new
        return rollout.start(before, int(number), offer.integer("share_bp")) if mine else ()
    if event.subject != f"channel {channel}":
        return ()
    if event.action == "channel.delete":
        return NOTHING
    return tuple(Arm.read(each) for each in after.objects("arms")) if "arms" in after else ()
