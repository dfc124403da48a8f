"""Debian's nginx as a plain static server of a site, on a loopback port."""

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")

CONFIGURATION = """
worker_processes 1;
daemon off;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log {work}/access.log combined;
    sendfile on;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{ listen 127.0.0.1:{port}; root {site}; }}
}}
"""


@contextmanager
def nginx(site, work):
    """Serve the directory `site`; answers the address. `work` is an empty directory for nginx's own files."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    work.chmod(0o755)
    configuration = work / "nginx.conf"
    user = "user root;\n" if not work.owner() or work.owner() == "root" else ""
    configuration.write_text(user + CONFIGURATION.format(work=work, site=site, port=port))
    process = subprocess.Popen([NGINX, "-c", str(configuration), "-e", str(work / "error.log")])
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
