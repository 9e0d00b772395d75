#!/bin/sh
# Build the libFuzzer targets with the address and undefined-behaviour sanitizers.
#   build.sh OUT EXPORTED    programs into OUT; EXPORTED is a folder of `deltakwt export --target c`
#   CC       clang with its runtime (Debian: clang, libclang-rt-dev)
#   QUICK    1: only the portable kernels, which build quickly
# An object is compiled again only if its source or a header is newer.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
native=$here/../../native
out=$1
exported=$2
cc=${CC:-clang}
mkdir -p "$out"

sanitizers="-fsanitize=address,undefined -fno-sanitize-recover=all"
flags="-std=c11 -g -O2 -DDK_QUICK_BUILD -Wall -Wextra -Werror -ffp-contract=off $sanitizers"
kernels="scalar fixed_scalar"
case ${QUICK:-0}$("$cc" -dumpmachine) in
0x86_64*)
    flags="$flags -DDK_HAVE_X86"
    kernels="$kernels avx2 fixed_avx2 avx512 fixed_avx512" ;;
esac
# shellcheck disable=SC2012
newest=$(ls -t "$native"/include/*.h "$native"/src/*.h "$native"/src/*/*.h "$native"/mcu/src/* \
    "$here"/*.h "$here/build.sh" | head -1)

# The compared values help libFuzzer to find the words of a file format. In arithmetic they only cost
# time, most of it: every end of a loop is a comparison.
no_values=-fno-sanitize-coverage=trace-cmp

# shellcheck disable=SC2086
compile() { # source, object, more flags
    case $1 in
    */model_file.c | */open.c | */stored_integers.c | */wav.c) values= ;;
    *) values=$no_values ;;
    esac
    [ -e "$2" ] && [ "$2" -nt "$1" ] && [ "$2" -nt "$newest" ] ||
        "$cc" $flags -fsanitize=fuzzer-no-link $values $3 -c "$1" -o "$2"
}

objects=
for file in "$native"/src/*.c "$native"/src/fixed/*.c; do
    compile "$file" "$out/$(basename "$file" .c).o" "-I$native/include"
    objects="$objects $out/$(basename "$file" .c).o"
done
for kernel in $kernels; do
    case $kernel in
    *avx2) extra="-mavx2 -mfma -mf16c" ;;
    *avx512)
        extra="-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma"
        # Linked, but never run on this processor: built in the quickest way.
        grep -qw avx512bw /proc/cpuinfo || extra="$extra -O0 -fno-sanitize=all" ;;
    *) extra= ;;
    esac
    compile "$native/src/kernels/$kernel.c" "$out/$kernel.o" "-I$native/include $extra"
    objects="$objects $out/$kernel.o"
done
for target in decider fixed interface model_file runner spotter stream wav; do
    compile "$here/$target.c" "$out/target_$target.o" "-I$native/include"
    # shellcheck disable=SC2012,SC2086
    [ "$out/fuzz_$target" -nt "$(ls -t "$out/target_$target.o" $objects | head -1)" ] ||
        "$cc" $flags -fsanitize=fuzzer "$out/target_$target.o" $objects -lm -o "$out/fuzz_$target"
done
# shellcheck disable=SC2012,SC2086
[ "$out/fuzz_exported" -nt "$newest" ] &&
    [ "$out/fuzz_exported" -nt "$(ls -t "$here/exported.c" "$native"/src/*.c | head -1)" ] ||
    "$cc" $flags -fsanitize=fuzzer $no_values -I"$exported/src" -I"$here" "$here/exported.c" \
        "$exported"/src/*.c -lm -o "$out/fuzz_exported"
