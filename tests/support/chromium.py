"""Run a script of this folder in Chromium instead of Node.js: python chromium.py SCRIPT ARGUMENTS < INPUT > OUTPUT

Arguments are texts and absolute paths; the page reads and writes files through a server of this process.
"""

import http.server
import json
import os
import shutil
import sys
import threading
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
NODE = Path(__file__).with_name("node_in_browser.mjs")
NODE_MODULES = ("node:fs", "node:crypto", "node:path")
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
PAGE = '<link rel="icon" href="data:,"><script type="importmap">{imports}</script>'


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the page, its request, and files at their absolute paths."""

    request_text = b""

    def do_GET(self):
        path = Path(self.path)
        if self.path == "/":
            content = PAGE.format(imports=json.dumps({"imports": dict.fromkeys(NODE_MODULES, str(NODE))})).encode()
        else:
            content = self.request_text if self.path == "/request" else path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", TYPES.get(path.suffix, "text/html"))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_PUT(self):
        self._write("wb")

    def do_POST(self):
        self._write("ab")

    def _write(self, mode):
        """Store the body of the request, or append it to the file."""
        with open(self.path, mode) as file:
            file.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def main(script, *arguments):
    from playwright.sync_api import sync_playwright  # not at the top: tests import this module to find Chromium

    request = {"args": [script, *arguments], "input": sys.stdin.read() if not sys.stdin.isatty() else ""}
    Handler.request_text = json.dumps(request).encode()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.getuid() == 0 else [])
        page = browser.new_page()
        page.set_default_timeout(0)
        page.on(
            "console", lambda message: print(message.text, file=sys.stderr if message.type == "error" else sys.stdout)
        )
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.evaluate("async (paths) => { for (const path of paths) await import(path); }", [str(NODE), script])
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
