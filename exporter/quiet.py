"""Keeps what torch and ExecuTorch print to themselves, and shows it only when they fail."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from registry.errors import PtdockError


@contextmanager
def quiet() -> Iterator[None]:
    """Within, standard error goes to a temporary file: their C++ code writes there without asking Python.

    When the block raises anything but an error of ptdock's own, or one that a library's failure caused, what was
    written is printed after all.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        failed = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
            failed = False
        except PtdockError as error:
            failed = isinstance(error.__cause__, RuntimeError)  # what a library said explains that error
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            if failed:
                log.seek(0)
                os.write(2, log.read())
