"""HTTPS, with a certificate made for the test by openssl."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import serving
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import ConfigError
from yaie.server.settings import ServerSettings

OPENSSL = shutil.which("openssl")


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_certificate_is_what_clients_see(fake: FakeEngine, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *(str(OPENSSL), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    with serving(lambda: fake, ssl_certfile=str(cert), ssl_keyfile=str(key)) as server:
        url = server.url.replace("http:", "https:")
        import ssl

        context = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=url, verify=context, timeout=10) as https:
            answer = https.post("/v1/completions", json={"prompt": "abc"})
            assert answer.json()["choices"][0]["text"] == "cba"
        with pytest.raises(httpx.TransportError):
            server.http.get("/health")  # plain HTTP is no longer spoken


def test_files_that_are_missing_are_said_before_anything_starts(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"ssl_certfile": str(tmp_path / "no")},
        {"ssl_keyfile": str(tmp_path)},
    ]
    for given in wrong:
        with pytest.raises(ConfigError) as refused:
            ServerSettings(**given)
        assert refused.value.param == "ssl_certfile"
