"""What the OpenAPI document says beyond FastAPI's own: the tree's files, the documents' schemas, every refusal.

The schemas are those of registry/schemas, which the registry's tests hold to the documents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from importlib import resources
from typing import Any

from fastapi import FastAPI

from server.problems import MEDIA_TYPE
from server.reading import NAME

DESCRIPTION = (
    "What channels offer, as files: devices verify them and compute their own plan. Questions and verbs are for people "
    "and backends."
)
_SCHEMAS = ("device_state", "manifest", "plan", "prompt", "release")
_COMPONENT = "#/components/schemas/"

PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, in one sentence."},
        "hint": {"type": "string", "description": "What to do."},
        "code": {"type": "string", "description": "The error's stable name."},
    },
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The responses of these statuses, all of them problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": f"{_COMPONENT}problem"}}}
    return {each: {"description": HTTPStatus(each).phrase, "content": content} for each in statuses}


def found(schema: Mapping[str, Any], description: str) -> dict[int | str, dict[str, Any]]:
    """A 200 with a JSON document."""
    return {200: {"description": description, "content": {"application/json": {"schema": dict(schema)}}}}


def asked(media_type: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a verb that needs a token, and its answer."""
    inline = json.loads(json.dumps(schema).replace("#/$defs/", _COMPONENT))
    return {
        **body(inline, media_type),
        "responses": {"200": found({"type": "object"}, "What was recorded.")[200]},
        "security": [{"token": []}],
    }


def body(schema: Mapping[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """The body that a route reads."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": dict(schema)}}}}


def component(name: str) -> dict[str, Any]:
    """A reference to one of registry/schemas."""
    return {"$ref": f"{_COMPONENT}{name}"}


STATUS = found({"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}}, "It answers.")
METRICS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
_QUESTION = {
    "type": "object",
    "required": ["channels", "device"],
    "additionalProperties": False,
    "properties": {
        "channels": {
            "type": "array",
            "minItems": 1,
            "maxItems": 100,
            "uniqueItems": True,
            "items": {"type": "string", "pattern": NAME},
        },
        "device": component("device_state"),
        "delete_first": {"type": "boolean", "default": False},
    },
}
PLAN = {
    **body(_QUESTION),
    "responses": {"200": found(component("plan"), "The plan.")[200]},
}


def complete(api: FastAPI) -> None:
    """Add to an application's OpenAPI document what FastAPI cannot know."""
    own = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            document = own()
            document["paths"] |= _tree()
            components = document.setdefault("components", {})
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schemas = components.setdefault("schemas", {})
            schemas |= {name: _schema(name) for name in _SCHEMAS} | {"problem": PROBLEM}
        return document if api.openapi_schema is None else api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]  # FastAPI's manual: "Extending OpenAPI"


@lru_cache
def _schema(name: str) -> dict[str, Any]:
    """One of registry/schemas, its references turned into this document's."""
    text = resources.files("registry.schemas").joinpath(f"{name}.json").read_text("utf-8")
    schema: dict[str, Any] = _rebased(json.loads(text), name)
    return {key: value for key, value in schema.items() if key not in ("$schema", "$id")}


def _rebased(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_rebased(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _target(each, name) if key == "$ref" else _rebased(each, name) for key, each in value.items()}


def _target(reference: str, name: str) -> str:
    file, _, pointer = reference.partition("#")
    return f"{_COMPONENT}{file.removesuffix('.json') or name}{pointer}"


def _tree() -> dict[str, Any]:
    """The paths of the static tree."""
    name = {"type": "string", "pattern": NAME}
    digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    document = {"type": "string", "pattern": r"^(([0-9]{1,9}\.(root|targets|snapshot))|timestamp)\.json$"}
    return {
        "/targets/v1/{channel}.json": _file("A channel's newest manifest.", component("manifest"), channel=name),
        "/targets/v1/{channel}.json.sig": _file("Its light signature.", None, channel=name),
        "/targets/{digest}.{channel}.json": _file(
            "A manifest under its digest.", component("manifest"), digest=digest, channel=name
        ),
        "/metadata/{document}": _file("TUF metadata.", {"type": "object"}, document=document),
        "/blobs/sha256/{digest}": _file("What a channel offers, by its digest.", None, digest=digest),
    }


def _file(description: str, schema: Mapping[str, Any] | None, **parameters: Mapping[str, Any]) -> dict[str, Any]:
    """GET and HEAD of one file, with conditions and a range."""
    kind = "application/json" if schema else "application/octet-stream"
    content = {kind: {"schema": dict(schema or {"type": "string", "format": "binary"})}}
    part = {kind: {"schema": {"type": "string", "format": "binary"}}}
    responses = {
        "200": {"description": description, "content": content},
        "206": {"description": "The range that was asked for.", "content": part},
        "304": {"description": "If-None-Match names these bytes."},
        "307": {"description": "Blobs are served elsewhere."},
        **{str(status): answer for status, answer in refusals(404, 412, 416).items()},
    }
    named = [{"name": key, "in": "path", "required": True, "schema": dict(each)} for key, each in parameters.items()]
    asked = [
        {"name": key, "in": "header", "schema": {"type": "string"}}
        for key in ("Range", "If-Range", "If-Match", "If-None-Match")
    ]
    both = {"parameters": [*named, *asked], "responses": responses}
    return {"get": {"summary": description, **both}, "head": {"summary": description, **both}}
