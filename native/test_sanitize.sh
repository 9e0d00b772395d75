#!/bin/sh
# The tests of the C core under AddressSanitizer and UndefinedBehaviorSanitizer, with every
# instruction set this processor has and AVX-512 emulated where it lacks it.
#   CC       compiler; a cross compiler tests another processor's kernels
#   RUN      what runs the programs, for instance qemu-aarch64
#   FLAGS    instead of the sanitizers and a quick build
#   BUILD    where to build
#   TESTS    which tests of tests/native
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
flags=${FLAGS:--O1 -DDK_QUICK_BUILD -fsanitize=address,undefined -fno-sanitize-recover=all}
build=${BUILD:-$here/../build/sanitize}
mkdir -p "$build"

common="-std=c11 -g -Wall -Wextra -Werror -ffp-contract=off -I$here/include $flags"
case $("$cc" -dumpmachine) in
x86_64*)
    common="$common -DDK_HAVE_X86"
    kernels="avx2 avx512"
    if ! grep -qw avx512bw /proc/cpuinfo 2>/dev/null &&
        echo '#include <simde/x86/avx512.h>' | "$cc" -E -xc - >/dev/null 2>&1; then
        emulated="-DDK_AVX512_HEADER=\"$here/../tests/native/avx512_emulated.h\""
        common="$common $emulated"
    fi ;;
aarch64*)
    common="$common -DDK_HAVE_NEON"
    kernels=neon ;;
*) kernels= ;;
esac

# Two files are compiled at a time.
# shellcheck disable=SC2086
compile() { # file, extra flags
    "$cc" $common $2 -c "$1" -o "$build/$(basename "$1" .c).o" &
    if [ -n "$compiling" ]; then wait "$compiling"; fi
    compiling=$!
    objects="$objects $build/$(basename "$1" .c).o"
}

compiling=
objects=
for file in "$here"/src/*.c "$here"/src/fixed/*.c "$here/src/kernels/scalar.c" \
    "$here/src/kernels/fixed_scalar.c"; do compile "$file" ""; done
for kernel in $kernels; do
    case $kernel in
    avx2) extra="-mavx2 -mfma -mf16c" ;;
    avx512)
        case $common in
        *DK_AVX512_HEADER*) extra="-mavx2 -mfma -Wno-psabi" ;; # simde does without the real instructions
        *) extra="-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma" ;;
        esac ;;
    *) extra="" ;;
    esac
    compile "$here/src/kernels/$kernel.c" "$extra"
    compile "$here/src/kernels/fixed_$kernel.c" "$extra"
done
wait "$compiling"
for test in ${TESTS:-kernels core fixed threads}; do
    # shellcheck disable=SC2086
    "$cc" $common "$here/../tests/native/test_$test.c" $objects -lm -pthread -o "$build/test_$test"
    ${RUN:-} "$build/test_$test"
done
