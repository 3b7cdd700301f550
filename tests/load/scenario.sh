#!/bin/sh
# Starts attnd on a free port of 127.0.0.1, puts one kind of load on it, and
# stops it. The daemon takes its options from ATTND_ variables as always.
#   scenario.sh load|overload|soak|crowd|service
# Variables: DURATION (seconds of each run), ROUNDS (that they are split into), HOURS,
# SHAPE (LxExH), IDLE, JSON (a file).
set -eu

build=${BUILD:-build}
log=$(mktemp)
pid=
stop() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    [ -z "$pid" ] || wait "$pid" || true
    rm -rf "$log" "$log.d"
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

memory_kib() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$pid/status"; }
files() { find "/proc/$pid/fd" -type l | wc -l; }

load() { # options...
    "$build/tests/load/load" --watch "$pid" ${JSON:+--json "$JSON"} "$@"
}

# One layer of `width`, every weight 0.0555 (the bytes "abc="): $log.d/w$width.safetensors
make_model() { # width heads
    square=$(($1 * $1 * 4))
    header="{\"__metadata__\":{\"num_heads\":\"$2\"}"
    at=0
    for name in query key value; do
        header="$header,\"layer.0.attention.self.$name.weight\":{\"dtype\":\"F32\",\"shape\":[$1,$1],\"data_offsets\":[$at,$((at + square))]}"
        at=$((at + square))
    done
    header="$header}"
    {
        printf '%b' "$(printf '\\0%03o\\0%03o\\0\\0\\0\\0\\0\\0' $((${#header} % 256)) $((${#header} / 256)))"
        printf '%s' "$header"
        yes 'abc=' | tr -d '\n' | head -c "$at"
    } >"$log.d/w$1.safetensors"
}

# Hidden states of 17 digits for that layer: $log.d/LENGTHxWIDTH.json
make_body() { # length width members
    awk -v l="$1" -v e="$2" -v more="$3" 'BEGIN {
        srand(1)
        printf "{\"model\":\"w%d\",%s\"hidden_states\":[", e, more
        for (i = 0; i < l; i++)
            for (j = 0; j < e; j++)
                printf "%s%.17g", j ? "," : i ? "],[" : "[", 2 * rand() - 1
        print "]]}"
    }' >"$log.d/$1x$2.json"
}

# LxExH of the digits 0 and 1, a byte or two each: $log.d/digits.json
make_digits() {
    echo "$1" | awk -Fx '{
        srand(1)
        printf "{\"need_weights\":false,\"num_heads\":%d,\"query\":{\"shape\":[%d,%d],\"data\":[", $3, $1, $2
        for (i = 0; i < $1 * $2; i++)
            printf "%s%d", i ? "," : "", 2 * rand()
        print "]}}"
    }' >"$log.d/digits.json"
}

rate() { # what connections load's-options...
    printf '  %-48s' "$1"
    connections=$2
    shift 2
    "$build/tests/load/load" --duration "${DURATION:-3}" --warmup 0.3 --rate "closed:$connections" "$@" |
        awk '$1 == "closed" && $2 == 200 { printf "%10.0f /s  p50 %8.3f ms  p99 %8.3f ms\n", $4, $5, $7; good = 1 }
             END { if (!good) print "no good answer" }'
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
    mkdir "$log.d"
    make_digits "${SHAPE:-8192x1x1}"
    export ATTND_QUEUE_WAIT_MS="${ATTND_QUEUE_WAIT_MS:-200}"
    start
    load --duration "${DURATION:-60}" --rounds "${ROUNDS:-3}" --warmup 1 --random yes \
        --connections 15000 --timeout 30000 --rate closed:4,100%,200%,500%,1000% \
        --body "$log.d/digits.json" --judge yes \
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
    load --count 20000 --rate closed:8 "http://127.0.0.1:$port/livez" # warm
    kib=$(memory_kib) files=$(files)
    load --count 1000000 --duration 600 --rate closed:1 "http://127.0.0.1:$port/livez"
    load --count 100000 --duration 600 --reconnect yes --rate closed:8 "http://127.0.0.1:$port/livez"
    sleep 2 # until the last have been closed
    grown=$(($(memory_kib) - kib)) more=$(($(files) - files))
    echo "after 10^6 requests and 10^5 connections: $grown KiB and $more files more"
    [ "$grown" -le 8192 ] && [ "$more" -le 0 ] || exit 1
    load --idle "${IDLE:-15000}" --rate 200 --duration "${DURATION:-20}" "http://127.0.0.1:$port/livez"
    ;;
service) # what a request costs end to end, on one worker; a bare libmicrohttpd beside it
    mkdir "$log.d"
    mkfifo "$log.d/end"
    make_model 64 4
    make_model 768 12
    make_body 16 64 '"need_weights":false,'
    make_body 128 768 '"need_weights":false,'
    make_body 512 768 '"need_weights":false,'
    export ATTND_MODELS="$log.d" ATTND_WORKERS="${ATTND_WORKERS:-1}"
    start
    "$build/tests/bench/bare/bare" <"$log.d/end" >"$log.d/port" &
    bare=$!
    exec 3>"$log.d/end"
    until [ -s "$log.d/port" ]; do kill -0 "$bare" && sleep 0.1; done
    rate 'GET / of a bare libmicrohttpd, 8 connections' 8 "http://127.0.0.1:$(cat "$log.d/port")/"
    rate 'GET /livez, 8 connections' 8 "http://127.0.0.1:$port/livez"
    for shape in 16x64 128x768 512x768; do
        for connections in 1 8; do
            rate "POST hidden states ${shape}, $connections connections" "$connections" \
                --body "$log.d/$shape.json" "http://127.0.0.1:$port/attention"
        done
    done
    exec 3>&-
    wait "$bare"
    ;;
*)
    echo "scenario.sh: load, overload, soak, crowd or service" >&2
    exit 2
    ;;
esac
