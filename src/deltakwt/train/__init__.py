"""Training; torch lives here and nowhere else."""

import os

# Threads that wait must sleep, not spin: beside other work on the same cores, spinning makes a
# step take up to thirty times as long. It has to be said before torch is first loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
