#!/bin/sh
# Install the torch of the extra `train` for the interpreter $1 (default python3), without CUDA.
# On Linux the package index has a torch with CUDA, 2.7 GB to download; PyTorch's own index has the
# build for processors, 0.2 GB. A wheel in a folder of PIP_FIND_LINKS is taken too. Only torch itself
# comes from there: what it depends on is installed with the extra, from the usual index.
set -eu
python=${1:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
wanted=$(sed -n 's/^train = \["\(torch==[^"]*\)".*/\1/p' "$here/pyproject.toml")
[ -n "$wanted" ] || { echo "pyproject.toml: no torch in the extra train" >&2; exit 2; }
found=$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true)
[ "torch==${found%%+*}" != "$wanted" ] || exit 0
if [ "$(uname -s)" != Linux ]; then
    exec "$python" -m pip install -q --no-deps "$wanted" # elsewhere no wheel has CUDA
fi
# A wheel at hand first: then nothing is asked of the network.
"$python" -m pip install -q --no-deps --only-binary :all: --no-index "$wanted" 2>/dev/null && exit 0
"$python" -m pip install -q --no-deps --only-binary :all: --retries 1 --timeout 30 \
    --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" "$wanted" || {
    echo "$wanted: no build without CUDA at ${TORCH_INDEX:-https://download.pytorch.org/whl/cpu};" \
        "name another index with TORCH_INDEX=, or install torch with: $python -m pip" >&2
    exit 1
}
