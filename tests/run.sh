#!/bin/sh
# Runs cmocka programs one after another and adds up their counts.
#   run.sh [--under "COMMAND..."] [--fuzz "TARGET..."] PROGRAM...
# A fuzz target replays its corpus and what was found, and counts as one test.
# Programs are the last argument of COMMAND.
# Last line: "N passed, N failed". Exit 0 when nothing failed and something ran.
set -u

passed=0 failed=0 under=
log=$(mktemp)
trap 'rm -f "$log"' EXIT

count() { # sum of the numbers after a cmocka label
    sed -n "s/^\[  $1  \] \([0-9]*\) test.*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
}

if [ "${1:-}" = --under ]; then
    under=$2
    shift 2
fi

if [ "${1:-}" = --fuzz ]; then
    for target in $2; do
        name=$(basename "$target" _fuzz)
        if "$target" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            cat "$log"
        fi
        tail -n 1 "$log"
    done
    shift 2
fi

for program in "$@"; do
    echo "== $program"
    $under "$program" >"$log" 2>&1 # a command and its options
    status=$?
    grep -v -e '^\[ RUN' -e '^\[       OK' "$log"
    good=$(count PASSED) bad=$(count FAILED)
    [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1 # died before it could count
    passed=$((passed + good)) failed=$((failed + bad))
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
