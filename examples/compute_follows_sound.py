"""What thresholds save on your own one-second clips: the share of the dense model's MACs.

python examples/compute_follows_sound.py MODEL CLIP...
"""

import sys

import deltakwt

model = deltakwt.load(sys.argv[1])
thresholds = deltakwt.Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1")
for clip in sys.argv[2:]:
    dense, delta = model(clip, setting="dense"), model(clip, setting=thresholds)
    assert delta.macs is not None
    print(
        f"{clip}: {dense.label} -> {delta.label} with {delta.macs.model_percent:.1f}% of the MACs"
    )
