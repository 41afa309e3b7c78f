"""Certificates for tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(directory: Path, name: str) -> None:
    """NAME.pem, which signs itself for 127.0.0.1, and NAME.key."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", directory / f"{name}.key", "-out", directory / f"{name}.pem",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
