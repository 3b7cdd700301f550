#!/bin/sh
# Runs the bench programs one after another; each prints its own table.
set -eu
for program in "$@"; do
    echo "== $(basename "$program")"
    "$program"
done
