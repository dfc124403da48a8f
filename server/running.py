"""Runs the server on a socket until the process is told to stop."""

from __future__ import annotations

import logging
import socket

import uvicorn
from starlette.types import ASGIApp

from registry.service import Registry
from server.api import create_app
from server.heads import BoundedHeads
from server.observed import log_line
from server.settings import Settings

_IDLE = 5
_STOP = 10


class _Lines(logging.Handler):
    """What uvicorn has to say, in the log's own form."""

    def emit(self, record: logging.LogRecord) -> None:
        log_line({"level": record.levelname.lower(), "message": record.getMessage()})


def config(app: ASGIApp) -> uvicorn.Config:
    """How uvicorn runs it: an idle connection ends after 5 seconds; what is being sent at the end gets 10 more."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http=BoundedHeads,
        ws="none",
        proxy_headers=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_STOP,
        backlog=2048,
    )


def run(registry: Registry, settings: Settings, listening: socket.socket) -> None:
    """Serve until interrupted."""
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [_Lines(logging.WARNING)], False
    uvicorn.Server(config(create_app(registry, settings))).run(sockets=[listening])
