"""Processor time for one second of sound in Node and in Chromium against the native engine.

python benchmarks/in_browser.py [--rounds 5] [--clips 100]

Every round runs the native engines (the kernels of this processor), Node and headless Chromium one
after the other on the same second of sound, from samples to logits, in floats and in fixed point.
Times are of the processor, not of the wall, so that other work on the machine disturbs them less;
those of Chromium are of all its processes and include the messages to the worker. "Worker" is the
time of the same calls by the clock of Chromium's worker, which is right on an idle machine. The
table has medians over rounds and ratios to the native engine in floats. It also prints what the
page transfers, and when it shows its first word after it was opened in a new browser.
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
SENTENCE = PROJECT / "examples" / "clips" / "sentence.flac"
SETTINGS = ("", "dense")  # the model's own, and dense
FILES = {"fixed": "models/0.dkw", "float": "models/0-float.dkw"}
RUN = """
const run = async (spotter, samples, setting, clips) => {
  const options = setting ? { setting } : {};
  let ms = 0;
  for (let i = 0; i < clips; i++) ms += (await spotter.explain(samples, options)).ms;
  return ms / clips;
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


def chromium(page: Page, arithmetic: str, setting: str, clips: int) -> tuple[float, float]:
    """Return the same for the page that is open, and by the clock of its worker."""
    code = f"""(async () => {{ {RUN}
      return await run(window.spotters.{arithmetic}, window.clip, {json.dumps(setting)}, {clips});
    }})()"""
    page.evaluate(code)
    begun = processor_seconds(page.process)
    inside = float(page.evaluate(code))
    return 1e3 * (processor_seconds(page.process) - begun) / clips, inside


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


def first_word(server: Server) -> float:
    """Return the seconds from opening the page in a new browser to its first word."""
    with open_browser() as page:
        page.go(server.url)
        page.wait("performance.getEntriesByName('word').length")
        return float(page.evaluate("performance.getEntriesByName('word')[0].startTime")) / 1e3


def prepare(page: Page, server: Server) -> None:
    """Load the package and the clip in the page, which gets no sound meanwhile."""
    page.go(server.url)
    page.wait("document.getElementById('status')?.textContent.startsWith('sentence:')")
    page.evaluate(
        f"""(async () => {{
          const {{ load }} = await import('./deltakwt/index.js');
          const {{ readWav }} = await import('./sound.js');
          window.spotters = {{}};
          for (const [name, url] of Object.entries({json.dumps(FILES)}))
            window.spotters[name] = await load(url);
          window.clip = readWav(await (await fetch('sounds/1.wav')).arrayBuffer()).slice(0, 16000);
        }})()"""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--model", default="kwt-1")
    given = parser.parse_args()
    models = {name: load(given.model, arithmetic=name) for name in ("float", "fixed")}
    clip, isa = read_clip(CLIP), models["float"].engine.isa
    server = Server(Site.of([given.model], [SENTENCE, CLIP]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    data = {name: server.site.files[path]() for name, path in FILES.items()}
    engine = len(gzip.compress((web_folder() / "deltakwt-relaxed.wasm").read_bytes()))
    print(f"engine {engine} bytes (gzip), model {len(data['fixed'])} bytes")
    first = sorted(first_word(server) for _ in range(given.rounds))
    print(f"first word after {first[len(first) // 2]:.2f} s, {first[0]:.2f} to {first[-1]:.2f} s")
    times: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, open_browser() as page:
        sound = Path(folder) / "sound.f32"
        clip.tofile(sound)
        prepare(page, server)
        for name, content in data.items():
            (Path(folder) / f"{name}.dkw").write_bytes(content)
        for _ in range(given.rounds):
            for setting in SETTINGS:
                for name, model in models.items():
                    stored = Path(folder) / f"{name}.dkw"
                    outside, inside = chromium(page, name, setting, given.clips)
                    for place, value in (
                        (f"native {isa}", native(model, clip, setting, given.clips)),
                        ("Node", node(stored, sound, setting, given.clips)),
                        ("Chromium", outside),
                        ("Worker", inside),
                    ):
                        key = (setting or str(model.setting), f"{place}, {name}")
                        times.setdefault(key, []).append(value)
    for (setting, name), values in times.items():
        base = statistics.median(times[setting, f"native {isa}, float"])
        middle = statistics.median(values)
        print(f"{setting:>12}  {name:<20} {middle:7.3f} ms  {middle / base:5.2f}x")


if __name__ == "__main__":
    main()
