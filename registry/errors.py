"""Every error that ptdock raises on purpose, sorted by whose fault it is.

One tree, one leaf module: everything may import it, it imports nothing. The command line maps the tree to
exit codes in one place (`exit_code`), so a script can tell a mistake in its input from a damaged store.
"""

from __future__ import annotations

from typing import Any


class PtdockError(Exception):
    """The root: a sentence that says what is wrong, a hint that says what to do, and the values involved.

    `values` holds what a program needs (`expected`, `actual`, which object), as JSON-able values.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", **values: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.values = values

    @property
    def code(self) -> str:
        """The error's stable name for scripts: the class name."""
        return type(self).__name__


class InputError(PtdockError):
    """The caller gave something that can never work: a bad name, a missing directory, an impossible option."""

    exit_code = 2


class FormatError(InputError):
    """Bytes are not the format that they claim to be."""


class AdapterRefused(InputError):
    """The gate found errors in an adapter; `values["findings"]` lists all of them."""

    exit_code = 4


class NotFound(PtdockError):
    """A name, digest or version that the registry does not hold."""

    exit_code = 5


class BlobMissing(NotFound):
    """A blob that is to be recorded is not in the store: it was never put, or was collected since it was."""


class Conflict(PtdockError):
    """The request contradicts what is recorded: immutable version, used name, referenced object."""

    exit_code = 6


class IntegrityError(PtdockError):
    """Bytes or links are not what was recorded: damage, or an attack."""

    exit_code = 7


class ProofFailed(IntegrityError):
    """A build does not compute what was trained; `values` hold the figures that it was judged by."""


class Unavailable(PtdockError):
    """Something outside is missing: torch, disk space, a lock, a network answer."""

    exit_code = 8


DAMAGE = (InputError, NotFound, Conflict, IntegrityError)
"""What tells of bytes and rows that they are not right. A bucket or a server that does not answer tells nothing."""
