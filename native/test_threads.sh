#!/bin/sh
# ThreadSanitizer: the C core under the tests of tests/native, then the Python extension under many
# calls from 8 threads (fuzz/threads.py) and the tests of the engine that use threads.
#   PYTHON   interpreter with nanobind, cmake, ninja and the packages that deltakwt needs
#   CALLS    calls of fuzz/threads.py
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/..
python=${PYTHON:-python3}
build=$root/build/threads
# At this optimisation gcc cannot see that every member of a sum is set before it is read.
flags="-O1 -g -DDK_QUICK_BUILD -fsanitize=thread -Wno-maybe-uninitialized"

FLAGS=$flags BUILD=$build/core TESTS="core fixed threads" sh "$here/test_sanitize.sh"

cmake -S "$root" -B "$build/extension" -G Ninja -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
    -DPython_EXECUTABLE="$("$python" -c 'import sys; print(sys.executable)')" >/dev/null
cmake --build "$build/extension" >/dev/null
rm -rf "$build/site"
mkdir -p "$build/site"
cp -r "$root/src/deltakwt" "$build/site/"
rm -f "$build/site/deltakwt/"_native*.so
cp "$build/extension/"_native*.so "$build/site/deltakwt/"

# Only the extension is instrumented, so only its own memory accesses are compared.
runtime=$(cc -print-file-name=libtsan.so)
cd "$root"
export PYTHONPATH="$build/site" LD_PRELOAD="$runtime" OPENBLAS_NUM_THREADS=1
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 report_signal_unsafe=0 ignore_noninstrumented_modules=1"
"$python" fuzz/threads.py --calls "${CALLS:-400}"
"$python" -m pytest -q -p no:cacheprovider tests/test_engine*.py -k thread
