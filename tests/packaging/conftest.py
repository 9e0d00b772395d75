"""The scripts of the project are importable here."""

import sys

from conftest import PROJECT

sys.path.insert(0, str(PROJECT / "scripts"))
