"""Real servers on loopback ports, and a store with something to offer."""

import json
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection

import numpy as np
import pytest
from safetensors.numpy import save_file

from exporter.publish import PublishOptions, publish
from registry.service import Registry
from server.api import create_app
from server.running import config
from server.settings import Settings


def write_adapter(directory, seed, rank=4):
    """A PEFT adapter for the q_proj of both layers of the tiny base, written without torch."""
    random = np.random.default_rng(seed)
    tensors = {
        f"base_model.model.model.layers.{layer}.self_attn.q_proj.{part}.weight": random.normal(size=shape).astype("f4")
        for layer in (0, 1)
        for part, shape in (("lora_A", (rank, 32)), ("lora_B", (32, rank)))
    }
    directory.mkdir()
    save_file(tensors, directory / "adapter_model.safetensors")
    adapter = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "target_modules": ["q_proj"]}
    (directory / "adapter_config.json").write_text(json.dumps(adapter))
    return directory


@pytest.fixture(scope="session")
def made(made_once, exported_home):
    """A directory with `home`, never written to: pirate and json are on the channel stable, hidden is on none."""

    def make(directory):
        home = shutil.copytree(exported_home, directory / "home")
        registry = Registry.open(home)
        for seed, name in enumerate(["pirate", "json", "hidden"]):
            publish(registry, write_adapter(directory / name, seed), PublishOptions("plain", name))
        registry.create_channel("stable")
        registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])

    return made_once("served", make)


@pytest.fixture(scope="session")
def offered(made):
    return made / "home"


@pytest.fixture
def home(offered, tmp_path):
    """A copy to write to."""
    return shutil.copytree(offered, tmp_path / "home")


class Reply:
    """One answer, read to its end."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Running:
    """A server in a thread; `log` holds its lines."""

    def __init__(self, port):
        self.port = port
        self.address = f"http://127.0.0.1:{port}"
        self.log = []

    def ask(self, method, path, body=None, **headers):
        """One request; `headers` with underscores for hyphens. The path is sent as it stands."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, names)
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, path, document, **headers):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.ask("POST", path, body, **{"Content_Type": "application/json", **headers})


@contextmanager
def serving(home, settings=None):
    import uvicorn

    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        running = Running(listening.getsockname()[1])
        app = create_app(Registry.open(home), settings or Settings(), running.log.append)
        server = uvicorn.Server(config(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield running
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def server(offered):
    """One server for all tests that only ask."""
    with serving(offered) as running:
        yield running


@pytest.fixture
def serve():
    return serving
