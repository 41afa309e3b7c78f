"""A file system that Spark reaches by itself: a directory, served read-only in the way of WebHDFS.

What Spark's own jars can read with nothing else installed; of `ftp:`, only text, because Parquet has to seek.
Answers name no content type: the jars lack the class that would look at it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

_PREFIX = "/webhdfs/v1"


class WebHdfs:
    """Serves `root` on loopback until it is closed; `url` is what to give to Spark."""

    def __init__(self, root: Path) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(root))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"webhdfs://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(root: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            name = unquote(parts.path.removeprefix(_PREFIX)).strip("/")
            path = root / name if name else root
            op = asked.get("op", "").upper()
            if not path.exists():
                self._refuse(404, "java.io.FileNotFoundException", f"File does not exist: /{name}")
            elif op == "GETFILESTATUS":
                self._say({"FileStatus": _status(path, "")})
            elif op == "LISTSTATUS":
                inside = sorted(path.iterdir()) if path.is_dir() else [path]
                listed = [_status(one, one.name if path.is_dir() else "") for one in inside]
                self._say({"FileStatuses": {"FileStatus": listed}})
            elif op == "OPEN" and "here" not in asked:
                self.send_response(307)
                host, port = self.server.server_address[:2]
                self.send_header("Location", f"http://{host}:{port}{self.path}&here=1")
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif op == "OPEN":
                self._open(path, int(asked.get("offset", 0)), asked.get("length"))
            elif op == "GETFILEBLOCKLOCATIONS":
                self._say({"BlockLocations": {"BlockLocation": [_block(path)]}})
            else:
                self._refuse(400, "java.lang.UnsupportedOperationException", f"op={op}")

        def _open(self, path: Path, offset: int, length: str | None) -> None:
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read(-1 if length is None else int(length))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # Who has read enough goes away.
                self.wfile.write(content)

        def _say(self, value: Any, code: int = 200) -> None:
            content = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _refuse(self, code: int, name: str, message: str) -> None:
            short = name.rsplit(".", 1)[-1]
            self._say({"RemoteException": {"exception": short, "javaClassName": name, "message": message}}, code)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    return Handler


def _block(path: Path) -> dict[str, Any]:
    return {
        "cachedHosts": [],
        "corrupt": False,
        "hosts": ["localhost"],
        "length": path.stat().st_size,
        "names": ["127.0.0.1:1"],
        "offset": 0,
        "storageTypes": ["DISK"],
        "topologyPaths": ["/default-rack/127.0.0.1:1"],
    }


def _status(path: Path, suffix: str) -> dict[str, Any]:
    stat = path.stat()
    return {
        "accessTime": 0,
        "blockSize": 128 << 20,
        "group": "nobody",
        "length": 0 if path.is_dir() else stat.st_size,
        "modificationTime": int(stat.st_mtime * 1000),
        "owner": "nobody",
        "pathSuffix": suffix,
        "permission": "755" if path.is_dir() else "644",
        "replication": 0 if path.is_dir() else 1,
        "type": "DIRECTORY" if path.is_dir() else "FILE",
    }
