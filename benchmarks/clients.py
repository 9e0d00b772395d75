"""Wyoming clients in real time on one core: processor time, memory and delay of the server.

    python benchmarks/clients.py --sound LibriSpeech/test-clean --clients 1 40 100 --seconds 180

For each number of clients a new server with one worker thread is started on a Unix socket, and
`deltakwt.serve.load` sends it running speech. The server keeps up if no word is late and it uses at
most one core. The memory of a further client is the difference to the run with the fewest clients.
The load program runs beside the server: leave it a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from deltakwt.archive.plan import find_files
from deltakwt.audio import read_blocks
from deltakwt.serve import load


def main() -> None:
    """Print a table, and all figures as JSON if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sound", required=True, help="Send this sound file, or this folder.")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 40, 100])
    parser.add_argument("--seconds", type=float, default=120.0, help="Seconds of each run.")
    parser.add_argument("--model", default="kwt-1")
    parser.add_argument("--arithmetic", help="float or fixed. Default: the model's own.")
    parser.add_argument("--out", type=Path, help="Write all figures to this JSON file.")
    options = parser.parse_args()
    results = []
    print("| clients | cores | MB per further client | words | late | delay, median / worst, ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        sound = Path(folder) / "sound.wav"
        store(options.sound, sound, options.seconds)
        for clients in sorted(options.clients):
            results.append(measure(options, Path(folder), sound, clients))
            first, this = results[0], results[-1]
            more = this["clients"] - first["clients"]
            memory = f"{(this['server_mb'] - first['server_mb']) / more:.2f}" if more else "-"
            delay = this["delay_ms"]
            print(
                f"| {clients} | {this['server_cores']} | {memory} | {this['words']} |"
                f" {this['late']} | {delay['median']} / {delay['worst']} |",
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


def store(source: str, path: Path, seconds: float) -> None:
    """Write as much sound as a run needs, so that it is not repeated if there is enough."""
    parts, length = [], 0
    for file in find_files([source]):
        for block in read_blocks(file):
            parts.append(block)
            length += len(block)
        if length >= seconds * 16_000:
            break
    soundfile.write(path, np.concatenate(parts), 16_000, subtype="PCM_16")


def measure(options: Any, folder: Path, sound: Path, clients: int) -> dict[str, Any]:
    """Run one server with so many clients."""
    socket = folder / f"socket-{clients}"
    command = [sys.executable, "-m", "deltakwt", "serve", "wyoming", "--uri", f"unix://{socket}"]
    command += ["--model", options.model, "--threads", "1", "--max-clients", str(clients)]
    if options.arithmetic:
        command += ["--arithmetic", options.arithmetic]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            while not socket.exists():
                if server.poll() is not None:
                    sys.exit((folder / "log").read_text())
                time.sleep(0.05)
            run = load.run(f"unix://{socket}", str(sound), clients, options.seconds, server.pid)
            return asyncio.run(run)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
