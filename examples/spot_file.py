"""The words in a recording of any length, and when they were said.

python examples/spot_file.py examples/clips/sentence.flac [MODEL]
"""

import sys

import deltakwt

model = deltakwt.load(sys.argv[2] if len(sys.argv) > 2 else "kwt-1")
for event in model.spot(sys.argv[1]).events:
    print(f"{event.start:6.2f} - {event.end:5.2f} s  {event.label:6} {event.score:.2f}")
