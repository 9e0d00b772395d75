"""Training. torch is imported in this package and nowhere else."""

import os

# Waiting threads must sleep: if they spin beside other work on the same cores, a step can take
# thirty times as long. This must be set before torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
