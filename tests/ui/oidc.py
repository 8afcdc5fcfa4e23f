"""An OpenID Connect provider of a few lines on 127.0.0.1: believes the `who` cookie it is shown."""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "twin", "a secret of the client"
FORGER = "forger"  # whose token bears a signature by another key


class Provider(ThreadingHTTPServer):
    """Discovery, keys, and the authorization code flow with PKCE left to the client."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port."""
        super().__init__(("127.0.0.1", 0), Answers)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.other_key = RSAKey.generate_key(2048, {"kid": "one"})
        self.codes: dict[str, dict[str, str]] = {}

    def token(self, asked: dict[str, str]) -> str:
        """Who logged in, signed."""
        now = int(time.time())
        claims = {
            "iss": self.issuer, "sub": asked["who"], "aud": CLIENT, "iat": now, "exp": now + 600,
            "nonce": asked["nonce"], "email": f"{asked['who']}@example.org",
        }  # fmt: skip
        key = self.other_key if asked["who"] == FORGER else self.key
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)


class Answers(BaseHTTPRequestHandler):
    """What the provider says to one request."""

    server: Provider

    def do_GET(self) -> None:
        """Metadata, keys, or a way back with a code."""
        at, issuer = urlsplit(self.path), self.server.issuer
        if at.path == "/.well-known/openid-configuration":
            self._say(
                {
                    "issuer": issuer,
                    "authorization_endpoint": f"{issuer}/authorize",
                    "token_endpoint": f"{issuer}/token",
                    "jwks_uri": f"{issuer}/keys",
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                }
            )
        elif at.path == "/keys":
            self._say({"keys": [self.server.key.as_dict(private=False)]})
        else:
            asked = {name: values[0] for name, values in parse_qs(at.query).items()}
            asked["who"] = self.headers["Cookie"].partition("who=")[2].partition(";")[0]
            code = secrets.token_urlsafe()
            self.server.codes[code] = asked
            back = urlencode({"code": code, "state": asked["state"]})
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri']}?{back}")
            self.end_headers()

    def do_POST(self) -> None:
        """A token for a code, once."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = self.server.codes.pop(parse_qs(body)["code"][0])
        token = self.server.token(asked)
        self._say({"access_token": "opaque", "token_type": "Bearer", "id_token": token})

    def _say(self, value: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test says what came of it."""


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider while it is needed."""
    with Provider() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
