#!/bin/sh
# Build the extension beside the Python files, for work on a source tree. PYTHON chooses the
# interpreter; it needs nanobind. The new file replaces the old one in one step.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$here/build/inplace}
python=${PYTHON:-python3}
cmake -S "$here" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DPython_EXECUTABLE="$("$python" -c 'import sys; print(sys.executable)')" >/dev/null
cmake --build "$build"
for built in "$build"/_native*.so; do
    target="$here/src/deltakwt/$(basename "$built")"
    cp "$built" "$target.part"
    mv "$target.part" "$target"
    echo "$target"
done
