#!/bin/sh
# Write requirements-dev.txt: every package of the development environment with its hashes, for all
# platforms and Python versions. Needs uv (pip install uv).
# torch is left out: its build (CPU or CUDA) depends on the machine, pyproject.toml names its release.
set -eu
cd "$(dirname "$0")/.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
echo "torch; sys_platform == 'none'" >"$made/without"
# uv takes releases whose Requires-Python ends below 3.11; pip does not.
echo "backports-strenum<1.3" >"$made/limits"
{
    echo "# Made by scripts/lock.sh (uv pip compile); do not edit. Use: make dev"
    uv pip compile --quiet pyproject.toml --extra dev --universal --python-version 3.11 \
        --generate-hashes --no-header --no-annotate --no-emit-package torch \
        --override "$made/without" --constraint "$made/limits" "$@"
} >"$made/requirements"
cp "$made/requirements" requirements-dev.txt
