"""Certificates for servers and clients on loopback, from a test authority."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

import trustme


class Authority:
    """``ca_file`` is what a client trusts; ``cert_file`` and ``key_file`` identify a client."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.cert_file = str(folder / "client.pem")
        self.key_file = str(folder / "client.key")
        self._ca.cert_pem.write_to_path(self.ca_file)
        client = self._ca.issue_cert("driver@example.test")
        client.cert_chain_pems[0].write_to_path(self.cert_file)
        client.private_key_pem.write_to_path(self.key_file)

    def server(
        self, *names: str, client_needed: bool = False, not_after: datetime | None = None
    ) -> ssl.SSLContext:
        """The TLS context of a server with these names, by default 127.0.0.1."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cert = self._ca.issue_cert(*(names or ("127.0.0.1",)), not_after=not_after)
        cert.configure_cert(context)
        if client_needed:
            self._ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
