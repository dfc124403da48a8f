"""Run in a process that has no torch: publish a directory over HTTP to a server there, and print the refusal.

without_torch.py HOME DIRECTORY
"""

import json
import sys
from pathlib import Path


def main(home, directory):
    from console.remote import Server
    from registry.errors import PtdockError
    from registry.service import Registry
    from tests.server.conftest import serving

    token = Registry.open(home).tokens().create("ci", "publish").text
    with serving(home) as running:
        try:
            Server(running.address, token).publish("odd", directory, {"foundation": "plain"})
        except PtdockError as error:
            print(json.dumps({"code": error.code, "message": error.message, "hint": error.hint}))  # noqa: T201


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(Path(sys.argv[1]), Path(sys.argv[2]))
