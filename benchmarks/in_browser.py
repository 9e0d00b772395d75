"""Milliseconds for one second of sound in Node and in Chromium against the native engine.

python benchmarks/in_browser.py [--rounds 5] [--clips 100]

Every round runs the native engine (the kernels of this processor), Node and headless Chromium one
after the other on the same second of sound: samples to logits, one thread. The table has the median
over rounds of each round's fastest run, which other work on the machine disturbs least. It also
prints what the page transfers, and when it shows its first word after it was opened.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
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
TIMED = """
const fastest = async (spotter, samples, setting, clips) => {
  let best = Infinity;
  for (let i = 0; i < clips; i++) {
    const { ms } = await spotter.explain(samples, setting ? { setting } : {});
    best = Math.min(best, ms);
  }
  return best;
};
"""


def native(model: Model, clip: np.ndarray, setting: str, clips: int) -> float:
    """Return the milliseconds of the fastest of many runs."""
    wanted = setting or model.setting
    return min(model.classify(clip, setting=wanted).ms for _ in range(clips))


def node(model: Path, sound: Path, setting: str, clips: int) -> float:
    """Return the same for Node, which must be installed."""
    code = f"""{TIMED}
    import {{ readFileSync }} from "node:fs";
    const {{ load }} = await import({json.dumps((web_folder() / "index.js").as_uri())});
    const spotter = await load({json.dumps(str(model))});
    const bytes = readFileSync({json.dumps(str(sound))});
    const samples = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    console.log(await fastest(spotter, samples, {json.dumps(setting)}, {clips}));
    """
    command = [shutil.which("node") or "node", "--input-type=module", "--eval", code]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def chromium(page: Page, setting: str, clips: int) -> float:
    """Return the same for the page that is open."""
    return float(
        page.evaluate(f"""(async () => {{ {TIMED}
          return fastest(window.spotter, window.clip, {json.dumps(setting)}, {clips});
        }})()""")
    )


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
