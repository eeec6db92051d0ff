"""`python -m tests.support.fake_raw_server CONFIG PORT`: what `bench.lib.raw` starts, without vLLM.

It has one child that ends with nobody. CONFIG's name decides what goes wrong: `dies` before it is ready.
"""

from __future__ import annotations

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from bench.lib.answering import say


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


def main() -> None:
    config, port = Path(sys.argv[1]), int(sys.argv[2])
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.DEVNULL)
    say({"serve": ["a model", "--port", str(port)]})
    if config.name == "dies":
        sys.exit("no room for the model")
    HTTPServer(("127.0.0.1", port), _Health).serve_forever()


if __name__ == "__main__":
    main()
