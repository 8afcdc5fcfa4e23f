"""The proxy's configuration of the documents, on this machine, with a certificate made here."""

import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from tests.conftest import PATIENCE_S, ROOT, free_port, profile

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"


@pytest.fixture
def proxy(app_url, tmp_path):
    """The address of nginx before the dashboard."""
    if not shutil.which(NGINX) or not shutil.which("openssl"):
        pytest.skip("nginx and openssl are not installed (apt-get install nginx-light openssl)")
    port, twin = free_port(), urlsplit(app_url).port
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-keyout", f"{tmp_path}/twin.key", "-out", f"{tmp_path}/twin.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    text = (ROOT / "docs/nginx.conf").read_text("utf-8")
    for here, there in {
        "/run/nginx.pid": str(tmp_path / "nginx.pid"),
        "listen 443": f"listen 127.0.0.1:{port}",
        "twin.example.org": "localhost",
        "/etc/ssl/": f"{tmp_path}/",
        "127.0.0.1:8501": f"127.0.0.1:{twin}",
    }.items():
        assert here in text
        text = text.replace(here, there)
    (tmp_path / "nginx.conf").write_text(text, "utf-8")
    command = [NGINX, "-c", str(tmp_path / "nginx.conf"), "-g", "daemon off;", "-p", str(tmp_path)]
    server = subprocess.Popen([*command, "-e", str(tmp_path / "error.log")])
    yield f"https://localhost:{port}"
    server.terminate()
    server.wait(timeout=PATIENCE_S)


def asked(address, data=None):
    context = ssl._create_unverified_context()
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        try:
            return urllib.request.urlopen(address, data, timeout=PATIENCE_S, context=context)
        except urllib.error.HTTPError as answer:
            return answer
        except OSError:  # nginx is starting
            time.sleep(0.1)
    raise AssertionError(f"nothing answers at {address}")


@pytest.mark.browser
def test_the_dashboard_works_behind_the_proxy(proxy, browser):
    answer = asked(proxy)
    assert answer.headers["strict-transport-security"]
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert asked(f"{proxy}/_stcore/upload_file", b"x" * (18 << 20)).status == 413
    context = profile(browser, ignore_https_errors=True)
    page = context.new_page()
    page.goto(proxy)
    page.get_by_role("heading", level=1).first.wait_for()
    context.close()
