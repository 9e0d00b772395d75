#!/bin/sh
# Install the Debian packages named in the file $1, where root and apt-get allow it.
# Elsewhere say what is missing and go on: the tests that need it skip with the reason.
set -eu
wanted=""
for package in $(sed 's/#.*//' "$1"); do
    dpkg -s "$package" >/dev/null 2>&1 || wanted="$wanted $package"
done
[ -n "$wanted" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends $wanted; } >/dev/null ||
        echo "apt-get could not install:$wanted; tests that need them skip" >&2
else
    echo "not installed:$wanted; tests that need them skip" >&2
fi
