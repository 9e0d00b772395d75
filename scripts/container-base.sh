#!/bin/sh
# Make the image localhost/debian:trixie-slim from Debian's packages, where no registry of images can
# be reached. Needs root, buildah and mmdebstrap. Then:
#   make container BASE=localhost/debian:trixie-slim
# $1, optional: a file of certificates that pip trusts, for a network behind a proxy of its own.
set -eu
name=localhost/debian:trixie-slim
tar=$(mktemp)
mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --aptopt='Acquire::Check-Valid-Until "false"' trixie - >"$tar"
container=$(buildah from scratch)
buildah add --quiet "$container" "$tar" /
if [ -n "${1:-}" ]; then
    buildah copy --quiet "$container" "$1" /etc/ssl/proxy.crt
    printf '[global]\ncert = /etc/ssl/proxy.crt\n' >"$tar"
    buildah copy --quiet --chmod 644 "$container" "$tar" /etc/pip.conf
fi
buildah commit --quiet --rm "$container" "$name"
rm "$tar"
