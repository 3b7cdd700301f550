#!/bin/sh
# Installs the Debian packages attnd builds and tests with, those that are missing,
# and those that are named.
set -eu

packages="gcc libc6-dev pkg-config libmicrohttpd-dev libgnutls28-dev libjansson-dev
          libopenblas-dev zlib1g-dev libzstd-dev libcmocka-dev libcurl4-openssl-dev curl
          shellcheck $*"
missing=
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
if [ -n "$sudo" ] && ! command -v sudo >/dev/null; then
    echo "no sudo here; as root: apt-get install$missing" >&2
    exit 1
fi
echo "installing$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
