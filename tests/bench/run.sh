#!/bin/sh
# Runs the bench programs one after another; each prints its own table. What
# they measure goes to $BUILD/bench.json as well. BENCH_SECONDS (0.3) is the time
# for a row of a table; LEVELS are the kernels that the core is measured with.
set -eu
BUILD=${BUILD:-build}
LEVELS=${LEVELS:-avx512 avx2}
parts=

# NAME PROGRAM ARGUMENT...: a table, and its part of the JSON
measure() {
    BENCH_JSON=$BUILD/bench-$1.json
    export BENCH_JSON
    rm -f "$BENCH_JSON"
    echo "== $1"
    shift
    "$@"
    [ ! -s "$BENCH_JSON" ] || parts="$parts $BENCH_JSON"
}

for program in "$@"; do
    name=$(basename "$program" _bench)
    case $name in
    core | layer)
        for level in $LEVELS; do
            measure "$name-$level" "$program" "$level"
        done
        ;;
    *) measure "$name" "$program" ;;
    esac
done

measure service tests/load/scenario.sh service

comma='{'
for part in $parts; do
    name=$(basename "$part" .json)
    printf '%s\n"%s": ' "$comma" "${name#bench-}"
    cat "$part"
    comma=,
done >"$BUILD/bench.json"
[ -z "$parts" ] || echo '}' >>"$BUILD/bench.json"
echo "== $BUILD/bench.json"
