"""TLS for the HTTP server: its certificate and the clients it accepts."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec


class Tls(msgspec.Struct, frozen=True):
    """Paths of PEM files; with ``client_ca_file`` only clients that it has signed may read."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files.

        Raises:
            OSError: a file cannot be read, or they do not match; the message names them.

        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password argument, an encrypted key would prompt at the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password="")
        except OSError as error:
            raise OSError(f"TLS files {self.cert_file}, {self.key_file}: {error}") from error
        if self.client_ca_file is not None:
            try:
                context.load_verify_locations(self.client_ca_file)
            except OSError as error:
                raise OSError(f"TLS client CA file {self.client_ca_file}: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def signature(self) -> tuple[object, ...]:
        """A value that changes with the files; Kubernetes swaps a link, which changes the inode.

        Raises:
            OSError: a file is missing or cannot be reached.

        """
        paths = [self.cert_file, self.key_file, self.client_ca_file]
        found = [Path(path).stat() for path in paths if path is not None]
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)
