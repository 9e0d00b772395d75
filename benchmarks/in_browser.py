"""Processor time for one second of sound in Node and in Chromium against the native engine.

python benchmarks/in_browser.py [--rounds 5] [--clips 100]

Every round runs the native engine (the kernels of this processor), Node and headless Chromium one
after the other on the same second of sound, from samples to logits. Times are of the processor, not
of the wall, so that other work on the machine disturbs them less; those of Chromium are of all its
processes and include the messages to the worker. The table has medians over rounds. It also prints
what the page transfers, and when it shows its first word after it was opened.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from deltakwt.audio import read_clip
from deltakwt.core.model import Model, load
from deltakwt.explore.server import Server
from deltakwt.explore.site import Site, web_folder

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests"))
from web.browser import Page, open_browser  # noqa: E402

CLIP = PROJECT / "examples" / "clips" / "yes.flac"
SETTINGS = ("", "dense")  # the model's own, and dense
RUN = """
const run = async (spotter, samples, setting, clips) => {
  for (let i = 0; i < clips; i++) await spotter.explain(samples, setting ? { setting } : {});
};
"""


def native(model: Model, clip: np.ndarray, setting: str, clips: int) -> float:
    """Return the milliseconds of one run."""
    wanted = setting or model.setting
    begun = time.process_time()
    for _ in range(clips):
        model.classify(clip, setting=wanted)
    return 1e3 * (time.process_time() - begun) / clips


def node(model: Path, sound: Path, setting: str, clips: int) -> float:
    """Return the same for Node, which must be installed. The first half warms the compiler up."""
    code = f"""{RUN}
    import {{ readFileSync }} from "node:fs";
    const {{ load }} = await import({json.dumps((web_folder() / "index.js").as_uri())});
    const spotter = await load({json.dumps(str(model))});
    const bytes = readFileSync({json.dumps(str(sound))});
    const samples = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    await run(spotter, samples, {json.dumps(setting)}, {clips});
    const begun = process.cpuUsage();
    await run(spotter, samples, {json.dumps(setting)}, {clips});
    const {{ user, system }} = process.cpuUsage(begun);
    console.log((user + system) / 1e3 / {clips});
    """
    command = [shutil.which("node") or "node", "--input-type=module", "--eval", code]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def chromium(page: Page, setting: str, clips: int) -> float:
    """Return the same for the page that is open."""
    code = f"""(async () => {{ {RUN}
      await run(window.spotter, window.clip, {json.dumps(setting)}, {clips});
    }})()"""
    page.evaluate(code)
    begun = processor_seconds(page.process)
    page.evaluate(code)
    return 1e3 * (processor_seconds(page.process) - begun) / clips


def processor_seconds(process: int) -> float:
    """Return the time that a process and all below it have used (Linux)."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    family = {process}
    while more := {n for n, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(number, 0) for number in family) / os.sysconf("SC_CLK_TCK")


def prepare(page: Page, server: Server) -> float:
    """Load the package in the page; return the seconds from opening to the first word."""
    page.go(server.url)
    page.wait("performance.getEntriesByName('word').length")
    seconds = page.evaluate("performance.getEntriesByName('word')[0].startTime") / 1e3
    page.evaluate(
        """(async () => {
          const { load } = await import('./deltakwt/index.js');
          window.spotter = await load('models/0.dkw');
          const data = await (await fetch('sounds/0.wav')).arrayBuffer();
          const decoded = await new OfflineAudioContext(1, 1, 16000).decodeAudioData(data);
          window.clip = decoded.getChannelData(0).slice(0, 16000);
        })()"""
    )
    return float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--model", default="kwt-1")
    given = parser.parse_args()
    model, clip = load(given.model), read_clip(CLIP)
    server = Server(Site.of([given.model], [CLIP]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    engine = len(gzip.compress((web_folder() / "deltakwt-relaxed.wasm").read_bytes()))
    weights = len(server.site.files["models/0.dkw"]())
    times: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, open_browser() as page:
        stored, sound = Path(folder) / "model.dkw", Path(folder) / "sound.f32"
        stored.write_bytes(server.site.files["models/0.dkw"]())
        clip.tofile(sound)
        first = prepare(page, server)
        for _ in range(given.rounds):
            for setting in SETTINGS:
                for name, value in (
                    (f"native, {model.engine.isa}", native(model, clip, setting, given.clips)),
                    ("Node", node(stored, sound, setting, given.clips)),
                    ("Chromium", chromium(page, setting, given.clips)),
                ):
                    times.setdefault((setting or str(model.setting), name), []).append(value)
    print(f"engine {engine} bytes (gzip), model {weights} bytes; first word after {first:.2f} s")
    for (setting, name), values in times.items():
        base = statistics.median(times[setting, f"native, {model.engine.isa}"])
        middle = statistics.median(values)
        print(f"{setting:>12}  {name:<14} {middle:7.3f} ms  {middle / base:5.2f}x")


if __name__ == "__main__":
    main()
