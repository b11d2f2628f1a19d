"""Serve a saved predictor over HTTP, JSON in and JSON out, with nothing but the standard library.

python examples/service.py model.npz [--port 8000]

GET / describes the predictor. POST /predict with {"rows": [[...], ...]} answers what it predicts;
what is wrong with a request is said in {"error": "..."}. It listens on this machine only: put a
server that knows about users, encryption and overload in front of it before others may ask.
"""

import argparse
import json
import math
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import mksknn

LARGEST = 50_000_000  # bytes of a request


def as_json(value):
    """Plain lists and numbers; what JSON has no word for (infinity, dates) as null or text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [as_json(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def describe(predictor):
    return {
        "predictor": repr(predictor),
        "columns": predictor.columns,
        "classes": as_json(predictor.classes),
    }


def answer(predictor, request):
    """What POST /predict replies; a ValueError or TypeError says what is wrong with the request."""
    if not isinstance(request, dict) or not isinstance(request.get("rows"), list):
        raise ValueError('the request must be {"rows": [[...], ...]}, one list for each point')
    found = predictor(request["rows"])
    names = ("label", "classes", "probability", "mean", "variance", "n_neighbors")
    return {name: as_json(getattr(found, name)) for name in names}


class Handler(BaseHTTPRequestHandler):
    """One request; the server's threads share its predictor."""

    protocol_version = "HTTP/1.1"  # a client may send its next request on the same connection
    timeout = 60
    disable_nagle_algorithm = True  # an answer is one small packet

    def do_GET(self):
        if self.path == "/":
            self.reply(200, describe(self.server.predictor))
        else:
            self.reply(404, {"error": f"there is nothing at {self.path}: GET / or POST /predict"})

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            self.close_connection = True  # the body stays unread
            self.reply(413, {"error": f"the request must say its length, at most {LARGEST} bytes"})
            return
        body = self.rfile.read(int(length))
        if self.path != "/predict":
            self.reply(404, {"error": f"there is nothing at {self.path}: POST /predict"})
            return
        try:
            self.reply(200, answer(self.server.predictor, json.loads(body)))
        except (ValueError, TypeError, RecursionError) as error:
            self.reply(400, {"error": str(error)})

    def reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing for each request."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address, predictor):
        super().__init__(address, Handler)
        self.predictor = predictor


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="file written by predictor.save")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any that is free")
    options = parser.parse_args()

    # what a service manager sends; a shell's background job never gets to see Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    predictor = mksknn.load_predictor(options.model)
    with Server(("127.0.0.1", options.port), predictor) as server:
        print(f"{predictor} at http://127.0.0.1:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
