"""Schemathesis finds no fault between the OpenAPI document and the server, without a token and with one for all."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from registry.service import Registry

# Not asked: whether all that JSON Schema allows is accepted. To it 1.0 is an integer and a form is any form.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection,unsupported_method,missing_required_header,ignored_auth"
)


@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")
@pytest.mark.parametrize("scope", [None, "admin"])
def test_the_document_tells_the_truth(home, serve, tmp_path, scope):
    token = Registry.open(home).tokens().create("all", scope).text if scope else None
    bearer = ["-H", f"Authorization: Bearer {token}"] if token else []
    with serve(home) as running:
        command = ["run", f"{running.address}/openapi.json", "--checks", CHECKS, "-n", "3", "--seed", "1", *bearer]
        options = [
            "--phases",
            "fuzzing",
            "--no-color",
            "--continue-on-failure",
            "--suppress-health-check",
            "all",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", *command, *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert {entry["route"] for entry in running.log} >= {
        "/v1/plan",
        "/targets",
        "/blobs",
        "/v1/channels/{channel}/halt",
    }
    assert [entry for entry in running.log if "trouble" in entry] == []
