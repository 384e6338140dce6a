"""A bucket of Google Cloud Storage on loopback: what its JSON API says of objects, and no more.

Objects are whole or not there, have generations, and writes with `ifGenerationMatch` are refused
where another came between, as the service's own (gcp-storage-emulator 2026.7 ignores this, and
`startOffset` of listings). Requests that gcsfs, TensorStore, google-cloud-storage and array_record
do not make get 501.

    with FakeBucket("b") as bucket:
        subprocess.run(..., env=os.environ | bucket.environment)
        bucket.objects["run/config.json"].content
        bucket.fail(one_in=10, seed=0)      some requests now get 500 or 503, or are cut
        bucket.forbidden = {"POST"}         these methods get 403
        bucket.seconds = .1                 answers come late
"""

import base64
import hashlib
import itertools
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 50  # names a listing gives at once: few, so that what asks for one page only is found out


class Object(NamedTuple):
    """The object under a name; another content is another object."""

    content: bytes
    generation: int


class Answer(NamedTuple):
    """The server's answer to one request."""

    status: int
    content: bytes = b""
    headers: Mapping[str, str] = {}


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def refusal(status: int, message: str) -> Answer:
    return as_json({"error": {"code": status, "message": message}}, status)


class FakeBucket:
    """One bucket, served on a port of its own while it is entered.

    Attributes:
      objects: by their names.
      environment: by which a process finds the bucket in place of Google's.
      forbidden, seconds: see above.
      counts: answers so far, by what was asked and their status; -1: the connection was cut.
    """

    def __init__(self, name: str = "bucket"):
        self.name, self.objects = name, dict[str, Object]()
        self.forbidden: set[str] = set()
        self.seconds = 0.0
        self.counts: Counter[tuple[str, int]] = Counter()
        self._generations = itertools.count(time.time_ns() // 1000)
        self._uploads: dict[str, tuple[str, dict, bytearray]] = {}
        self._lock = threading.Lock()
        self.fail(one_in=0)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(self))
        self._server.daemon_threads = True
        address = f"http://127.0.0.1:{self._server.server_port}"
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
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

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
        return sorted(name for name in dict(self.objects) if name.startswith(prefix))

    def put(self, name: str, content: bytes) -> Object:
        """Writes an object, whatever lay under its name."""
        stored = self.objects[name] = Object(content, next(self._generations))
        return stored

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The service's answer to a request that has arrived whole."""
        if method in self.forbidden:
            return refusal(403, "nobody does not have storage.objects access to the bucket.")
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path.startswith("/batch/"):
            return self._batch(headers, body)
        with self._lock:
            if url.path.startswith("/upload/resumable/"):
                return self._chunk(url.path.rpartition("/")[2], headers, body)
            match = re.fullmatch(
                r"(?:/(upload|download))?/storage/v1/b/([^/]+)(?:/o(?:/(.+))?)?", url.path
            )
            if match is None:
                return refusal(501, f"{method} {target}")
            kind, bucket, name = match.groups()
            if bucket != self.name:
                return refusal(404, "The specified bucket does not exist.")
            if kind == "upload":
                return self._upload(query, headers, body)
            if name is None:
                has_o = url.path.rstrip("/").endswith("/o")
                return self._list(query) if has_o else as_json({"name": bucket, "id": bucket})
            if method == "POST":
                return self._copy(name, query)
            return self._object(method, unquote(name), query, headers)

    def _object(
        self, method: str, name: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Answer:
        stored = self.objects.get(name)
        if stored is None:
            return refusal(404, f"No such object: {self.name}/{name}")
        if wrong := self._condition(stored, query):
            return Answer(wrong) if wrong == 304 else refusal(wrong, "conditionNotMet")
        if method == "DELETE":
            del self.objects[name]
            return Answer(204)
        if query.get("alt") != "media":
            return as_json(self._resource(name, stored))
        generation, size = str(stored.generation), len(stored.content)
        fields = {"x-goog-generation": generation, "ETag": f'"{generation}"'}
        fields["Content-Type"] = "application/octet-stream"
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("Range", ""))
        if match is None:
            return Answer(200, stored.content, fields)
        first, last = match.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if start >= size:
            return Answer(416, b"", fields | {"Content-Range": f"bytes */{size}"})
        fields["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return Answer(206, stored.content[start:end], fields)

    def _condition(self, stored: Object | None, query: Mapping[str, str]) -> int:
        """The status of a request whose precondition does not hold; 0 if it does."""
        generation = str(stored.generation) if stored else "0"
        if query.get("generation", generation) != generation:
            return 404
        if query.get("ifGenerationMatch", generation) != generation:
            return 412
        return 304 if query.get("ifGenerationNotMatch") == generation else 0

    def _resource(self, name: str, stored: Object) -> dict[str, str]:
        stamp = "2026-01-01T00:00:00.000Z"
        return {
            "kind": "storage#object",
            "id": f"{self.name}/{name}/{stored.generation}",
            "name": name,
            "bucket": self.name,
            "generation": str(stored.generation),
            "metageneration": "1",
            "size": str(len(stored.content)),
            "md5Hash": base64.b64encode(hashlib.md5(stored.content).digest()).decode(),
            "timeCreated": stamp,
            "updated": stamp,
            "contentType": "application/octet-stream",
            "storageClass": "STANDARD",
            "etag": str(stored.generation),
        }

    def _list(self, query: Mapping[str, str]) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        start = max(query.get("startOffset", ""), query.get("pageToken", ""))
        end, limit = query.get("endOffset"), min(PAGE, int(query.get("maxResults", PAGE)))
        items, prefixes = [], []
        listing = {"kind": "storage#objects", "items": items, "prefixes": prefixes}
        objects = dict(self.objects)
        for name in sorted(name for name in objects if name.startswith(prefix)):
            rest = name[len(prefix) :]
            is_folder = bool(delimiter) and delimiter in rest
            key = prefix + rest.partition(delimiter)[0] + delimiter if is_folder else name  # pyright: ignore
            if name < start or (end and name >= end) or key in prefixes or key < start:
                continue
            if len(items) + len(prefixes) == limit:
                return as_json(listing | {"nextPageToken": key})
            if is_folder:
                prefixes.append(key)
            else:
                items.append(self._resource(name, objects[name]))
        return as_json(listing)

    def _upload(self, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> Answer:
        name = unquote(query["name"]) if "name" in query else ""
        if query.get("uploadType") == "resumable":
            key = str(next(self._generations))
            self._uploads[key] = name or json.loads(body)["name"], dict(query), bytearray()
            return Answer(
                200, b"", {"Location": f"http://{headers['Host']}/upload/resumable/{key}"}
            )
        if query.get("uploadType") == "multipart":
            boundary = re.search(r'boundary="?([^";]+)"?', headers["Content-Type"])
            assert boundary is not None
            mark = rb"\r?\n?--" + re.escape(boundary[1].encode())
            _, described, media, _ = re.split(mark, body)
            described, body = (
                re.split(rb"\r?\n\r?\n", x, maxsplit=1)[1] for x in (described, media)
            )
            name = name or json.loads(described)["name"]
        return self._store(name, query, body)

    def _store(self, name: str, query: Mapping[str, str], body: bytes) -> Answer:
        if wrong := self._condition(self.objects.get(name), query):
            return refusal(wrong, "conditionNotMet")
        return as_json(self._resource(name, self.put(name, bytes(body))))

    def _chunk(self, key: str, headers: Mapping[str, str], body: bytes) -> Answer:
        name, query, so_far = self._uploads[key]
        match = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", headers["Content-Range"])
        assert match is not None
        if match[1]:
            del so_far[int(match[1]) :]  # sent again after an error
            so_far += body
        if match[3] != "*" and len(so_far) == int(match[3]):
            return self._store(name, query, so_far)
        return Answer(308, b"", {"Range": f"bytes=0-{len(so_far) - 1}"} if so_far else {})

    def _copy(self, names: str, query: Mapping[str, str]) -> Answer:
        match = re.fullmatch(r"([^/]+)/(moveTo|rewriteTo|copyTo)(?:/b/([^/]+))?/o/([^/]+)", names)
        if match is None:
            return refusal(501, names)
        source, kind, _, target = (unquote(part or "") for part in match.groups())
        if source not in self.objects:
            return refusal(404, f"No such object: {self.name}/{source}")
        stored = self.put(target, self.objects[source].content)
        if kind == "moveTo":
            del self.objects[source]
        resource = self._resource(target, stored)
        return as_json({"done": True, "resource": resource} if kind == "rewriteTo" else resource)

    def _batch(self, headers: Mapping[str, str], body: bytes) -> Answer:
        text = ""
        for method, target in re.findall(rb"\n(DELETE|GET) (\S+) HTTP/1.1", body):
            answer = self.answer(method.decode(), target.decode(), headers, b"")
            text += f"--batch\nContent-Type: application/http\n\nHTTP/1.1 {answer.status} .\n\n"
            text += f"{answer.content.decode()}\n"
        fields = {"Content-Type": "multipart/mixed; boundary=batch"}
        return Answer(200, f"{text}--batch--".encode(), fields)


def make_handler(bucket: FakeBucket) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self):
            length = int(self.headers.get("Content-Length") or 0)
            is_chunked = "Transfer-Encoding" in self.headers
            body = self.chunked() if is_chunked else self.rfile.read(length)
            if len(body) < length:  # whoever sent it was killed
                self.close_connection = True
                return
            time.sleep(bucket.seconds)
            fault = bucket.fault()
            if fault == "cut before":
                return self.cut()
            answer = (
                refusal(int(fault), "backendError")
                if fault.isdigit()
                else bucket.answer(self.command, self.path, self.headers, body)  # pyright: ignore
            )
            if fault == "cut after":
                return self.cut()
            request = f"{self.command} {urlsplit(self.path).path.split('/')[1]}"
            bucket.counts[request, answer.status] += 1
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            if fault == "cut half" and len(answer.content) > 1:
                self.wfile.write(answer.content[: len(answer.content) // 2])
                return self.cut()
            if self.command != "HEAD":
                self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do

        def chunked(self) -> bytes:
            parts = []
            while size := int(self.rfile.readline() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def cut(self):
            bucket.counts["cut", -1] += 1
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
