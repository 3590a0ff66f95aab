"""A file system on loopback that Hadoop's own client speaks to: ``webhdfs://``, kept in a folder.

The part of WebHDFS that Spark's checkpoints need; it can deny access, as HDFS denies a user without
permission.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from support.http_double import Answer, DoubleHandler, HttpDouble, RecordedRequest, reply

PREFIX = "/webhdfs/v1"
SERVER_DEFAULTS = {
    "blockSize": 1 << 20,
    "bytesPerChecksum": 512,
    "writePacketSize": 65536,
    "replication": 1,
    "fileBufferSize": 4096,
    "encryptDataTransfer": False,
    "trashInterval": 0,
    "checksumType": 2,
    "keyProviderUri": "",
    "defaultStoragePolicyId": 0,
}


class WebHdfs(HttpDouble):
    """While ``refuses`` is set, it answers every request with an ``AccessControlException``."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.refuses = False

    @property
    def uri(self) -> str:
        return f"webhdfs://127.0.0.1:{self.server_address[1]}"

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        if self.refuses:
            text = 'Permission denied: user=etl, access=READ_EXECUTE, inode="/cp"'
            answer = refusal(403, "org.apache.hadoop.security.AccessControlException", text)
        else:
            answer = self._answer(request)
        answer(handler)

    def _answer(self, request: RecordedRequest) -> Answer:
        parts = urlsplit(request.path)
        options = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = self._local(unquote(parts.path).removeprefix(PREFIX))
        operation = options["op"].upper()
        if operation in ("CREATE", "OPEN") and "data" not in options:
            place = f"http://{request.headers['Host']}{request.path}&data=true"
            return reply(307, {"Location": place})
        return getattr(self, f"_{operation.lower()}")(path, options, request)

    def _local(self, path: str) -> Path:
        return self.folder / path.strip("/")

    def _gethomedirectory(self, path, options, request):
        return report({"Path": "/user/etl"})

    def _getserverdefaults(self, path, options, request):
        return report({"FsServerDefaults": SERVER_DEFAULTS})

    def _getfilestatus(self, path, options, request):
        if not path.exists():
            return refusal(
                404, "java.io.FileNotFoundException", f"File does not exist: {path.name}"
            )
        return report({"FileStatus": status(path, "")})

    _getfilelinkstatus = _getfilestatus

    def _liststatus(self, path, options, request):
        if not path.exists():
            return self._getfilestatus(path, options, request)
        return report({"FileStatuses": {"FileStatus": [status(p, p.name) for p in path.iterdir()]}})

    def _mkdirs(self, path, options, request):
        path.mkdir(parents=True, exist_ok=True)
        return report({"boolean": True})

    def _create(self, path, options, request):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(request.body)
        return reply(201)

    def _open(self, path, options, request):
        return reply(200, body=path.read_bytes()[int(options.get("offset", 0)) :])

    def _rename(self, path, options, request):
        target = self._local(options["destination"])
        moved = path.exists() and not target.exists()
        if moved:
            path.rename(target)
        return reply(200) if "renameoptions" in options else report({"boolean": moved})

    def _delete(self, path, options, request):
        there = path.exists()
        if path.is_dir():
            shutil.rmtree(path)
        elif there:
            path.unlink()
        return report({"boolean": there})


def report(answer: dict) -> Answer:
    # Without a content type: Hadoop's shaded client lacks the class that would parse it.
    return reply(200, body=json.dumps(answer).encode())


def refusal(code: int, java: str, message: str) -> Answer:
    error = {"exception": java.rpartition(".")[2], "javaClassName": java, "message": message}
    body = json.dumps({"RemoteException": error}).encode()
    return reply(code, body=body)


def status(path: Path, suffix: str) -> dict:
    facts = path.stat()
    return {
        "pathSuffix": suffix,
        "type": "DIRECTORY" if path.is_dir() else "FILE",
        "length": facts.st_size,
        "modificationTime": int(facts.st_mtime * 1000),
        "accessTime": 0,
        "blockSize": 1 << 20,
        "replication": 1,
        "owner": "etl",
        "group": "etl",
        "permission": "755",
    }
