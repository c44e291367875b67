#!/usr/bin/env python3
"""A small HTTP model server: an embedding table in GPU memory, looked up by token.

    LD_PRELOAD=libgpucap.so GPUCAP_LIMIT=0.3 python3 serve.py --model-mib 512

    curl -s localhost:8000/memory
    curl -s -d '{"tokens": [1, 2, 3]}' localhost:8000/embed
    curl -s -d '{"mib": 100}' localhost:8000/grow

Standard library only. The table lies in PyTorch where PyTorch is installed (and sees a GPU), else in plain driver memory
through ctypes. Exit code 3: the model did not fit into what the GPU, or gpucap, gave.
"""
import argparse
import array
import ctypes
import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIMENSIONS = 256  # float32 each
ROW = 4 * DIMENSIONS
MIB = 1 << 20


class OutOfMemory(Exception):
    """The GPU has no room (left) for this process."""


class Driver:
    """The CUDA driver API through ctypes: just what a table needs."""

    name = "the CUDA driver"

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", ctypes.c_uint(0))
        context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self.context = context
        self.enter()

    def check(self, function, *arguments):
        code = getattr(self.cuda, function)(*arguments)
        if code == 2:
            raise OutOfMemory(f"{function}: out of memory")
        if code:
            raise RuntimeError(f"{function}: CUDA error {code}")

    def enter(self):
        """Makes the context current on the calling thread, as each thread that calls the driver must."""
        self.check("cuCtxSetCurrent", self.context)

    def memory(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def write(self, pointer, data):
        buffer = (ctypes.c_char * len(data)).from_buffer_copy(data)
        self.check("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), buffer, ctypes.c_size_t(len(data)))

    def read(self, pointer, size):
        buffer = (ctypes.c_char * size)()
        self.check("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        return bytes(buffer)


class Torch:
    """The same through PyTorch."""

    def __init__(self):
        import torch  # noqa: PLC0415 - only where it is installed

        if not torch.cuda.is_available():
            raise ImportError("PyTorch sees no GPU")
        self.torch = torch
        self.name = f"PyTorch {torch.__version__}"
        self.blocks = []
        torch.cuda.init()

    def enter(self):
        pass

    def memory(self):
        return self.torch.cuda.mem_get_info()

    def allocate(self, size):
        try:
            self.blocks.append(self.torch.empty(size, dtype=self.torch.uint8, device="cuda"))
        except self.torch.OutOfMemoryError as error:
            raise OutOfMemory(str(error).split(". ")[0]) from None
        return len(self.blocks) - 1, 0

    def write(self, place, data):
        block, offset = place
        source = self.torch.frombuffer(bytearray(data), dtype=self.torch.uint8)
        self.blocks[block][offset : offset + len(data)].copy_(source)

    def read(self, place, size):
        block, offset = place
        return bytes(self.blocks[block][offset : offset + size].cpu().numpy())


def at(place, offset):
    """The place `offset` bytes into an allocation."""
    return (place[0], place[1] + offset) if isinstance(place, tuple) else place + offset


def backend():
    try:
        return Torch()
    except ImportError:
        return Driver()


class Table:
    """The model: one row of float32 for each token."""

    def __init__(self, gpu, size):
        self.gpu = gpu
        self.rows = max(size // ROW, 1)
        self.place = gpu.allocate(self.rows * ROW)
        self.lock = threading.Lock()
        for token in range(min(self.rows, 1000)):
            row = array.array("f", ((token + i) / DIMENSIONS for i in range(DIMENSIONS)))
            gpu.write(at(self.place, token * ROW), row.tobytes())

    def embed(self, tokens):
        """The mean of the tokens' rows."""
        mean = [0.0] * DIMENSIONS
        with self.lock:
            for token in tokens:
                row = array.array("f", self.gpu.read(at(self.place, token % self.rows * ROW), ROW))
                mean = [m + value / len(tokens) for m, value in zip(mean, row)]
        return mean


def handler(gpu, table):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if self.path != "/memory":
                return self.answer(404, {"error": "GET /memory, POST /embed, POST /grow"})
            gpu.enter()
            free, total = gpu.memory()
            return self.answer(200, {"free": free, "total": total})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            gpu.enter()
            try:
                if self.path == "/embed":
                    return self.answer(200, {"embedding": table.embed(body["tokens"])})
                if self.path == "/grow":
                    gpu.allocate(int(body["mib"]) * MIB)
                    return self.answer(200, {"grown": body["mib"]})
            except OutOfMemory as error:
                return self.answer(507, {"error": str(error)})
            return self.answer(404, {"error": "GET /memory, POST /embed, POST /grow"})

        def answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="0: any free one")
    parser.add_argument("--model-mib", type=int, default=256, help="size of the model")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    gpu = backend()
    free, total = gpu.memory()
    print(f"{gpu.name}: told total {total >> 20} MiB, free {free >> 20} MiB", flush=True)
    try:
        table = Table(gpu, options.model_mib * MIB)
    except OutOfMemory as error:
        print(f"a model of {options.model_mib} MiB does not fit: {error}", flush=True)
        sys.exit(3)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler(gpu, table))
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
