#!/bin/sh
# Starts attnd on a free port of 127.0.0.1, puts one kind of load on it, and
# stops it. The daemon takes its options from ATTND_ variables as always.
#   scenario.sh load|overload|soak|crowd
# Variables: DURATION (seconds of each run), HOURS, SHAPE (LxExH), IDLE, JSON (a file).
set -eu

build=${BUILD:-build}
log=$(mktemp)
pid=
stop() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    [ -z "$pid" ] || wait "$pid" || true
    rm -f "$log"
}
trap stop EXIT
trap 'exit 1' INT TERM

start() {
    "$build/attnd" --listen 127.0.0.1:0 --log-format json --log-level warn 2>"$log" &
    pid=$!
    for _ in $(seq 200); do
        port=$(sockets | head -n 1)
        [ -n "$port" ] && "$build/attnd" --healthcheck --listen "127.0.0.1:$port" 2>/dev/null && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "attnd did not start:" >&2
    cat "$log" >&2
    exit 1
}

# Ports of 127.0.0.1 on which the daemon listens: its sockets' inodes, looked up.
sockets() {
    find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n' |
        while read -r inode; do
            awk -v inode="$inode" '$4 == "0A" && $10 == inode { sub(".*:", "", $2); print $2 }' /proc/net/tcp
        done | while read -r hex; do printf '%d\n' "0x$hex"; done
}

load() { # options...
    "$build/tests/load/load" --watch "$pid" ${JSON:+--json "$JSON"} "$@"
}

scenario=${1:-load}
case $scenario in
load)
    start
    load --duration "${DURATION:-5}" --warmup 0.5 --connections 256 \
        --rate closed:8,10%,25%,50%,75%,90% --attention "${SHAPE:-64x256x4}" \
        "http://127.0.0.1:$port/attention"
    ;;
overload) # much arithmetic for few bytes, so that the generator leaves the CPU to the daemon
    start
    load --duration "${DURATION:-60}" --warmup 2 --connections 15000 --timeout 30000 \
        --rate closed:4,100%,200%,500%,1000% --attention "${SHAPE:-8192x1x1}" --judge yes \
        "http://127.0.0.1:$port/attention"
    ;;
soak)
    start
    load --duration "$(awk "BEGIN { print ${HOURS:-0.5} * 3600 }")" --rate closed:8 \
        --attention 8x32x4 --attention 64x64x4 --attention "${SHAPE:-256x256x8}" \
        --bad 10 --abort 5 --flat 1 "http://127.0.0.1:$port/attention"
    ;;
crowd)
    export ATTND_MAX_CONNECTIONS="${ATTND_MAX_CONNECTIONS:-200000}"
    start
    load --count 1000000 --duration 600 --rate closed:1 "http://127.0.0.1:$port/livez"
    load --idle "${IDLE:-15000}" --rate 200 --duration "${DURATION:-20}" "http://127.0.0.1:$port/livez"
    ;;
*)
    echo "scenario.sh: load, overload, soak or crowd" >&2
    exit 2
    ;;
esac
