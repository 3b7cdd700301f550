#!/bin/sh
# Two instances behind HAProxy, as config/deploy/haproxy.cfg sets it up, under
# open-loop load; each is stopped by SIGTERM and started anew in turn. No request
# may fail, whoever answers it.
# Variables: RESTARTS (100), RATE (requests a second, 600).
set -eu

build=${BUILD:-build} restarts=${RESTARTS:-100} rate=${RATE:-600}
work=$(mktemp -d)
one='' two='' proxy='' load=''
stop() {
    for pid in $load $proxy $one $two; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM

port=${PORT:-18200}
export ATTND_BIND="127.0.0.1:$port" ATTND_ONE="127.0.0.1:$((port + 1))" ATTND_TWO="127.0.0.1:$((port + 2))"

start() { # address; the pid is $!
    env -u ATTND_BIND -u ATTND_ONE -u ATTND_TWO "$build/attnd" --listen "$1" --log-format json --log-level warn \
        --workers 1 --drain-delay-ms 600 --queue-wait-ms 5000 2>>"$work/log" &
}
await() { # address
    for _ in $(seq 300); do
        env -u ATTND_BIND -u ATTND_ONE -u ATTND_TWO "$build/attnd" --healthcheck --listen "$1" 2>/dev/null && return
        sleep 0.05
    done
    echo "nothing is ready at $1:" >&2
    cat "$work/log" >&2
    exit 1
}

start "$ATTND_ONE"; one=$!
start "$ATTND_TWO"; two=$!
await "$ATTND_ONE"
await "$ATTND_TWO"
haproxy -db -f config/deploy/haproxy.cfg 2>"$work/proxy" &
proxy=$!
await "$ATTND_BIND"

"$build/tests/load/load" --rate "$rate" --duration $((restarts * 2)) --connections 200 \
    --timeout 10000 --attention 8x16x2 --json "$work/report" "http://$ATTND_BIND/attention" >"$work/table" 2>&1 &
load=$!
n=0
while [ "$n" -lt "$restarts" ]; do
    n=$((n + 1))
    if [ $((n % 2)) -eq 1 ]; then
        kill "$one"; wait "$one" || { echo "exit status $?" >&2; exit 1; }
        start "$ATTND_ONE"; one=$!
        await "$ATTND_ONE"
    else
        kill "$two"; wait "$two" || { echo "exit status $?" >&2; exit 1; }
        start "$ATTND_TWO"; two=$!
        await "$ATTND_TWO"
    fi
    sleep 0.4 # until the proxy has seen it
    kill -0 "$load" 2>/dev/null || break
done
wait "$load" || true
load=
cat "$work/table"
# Anything but a 200 is a failure, and so is a request without an answer.
awk -v restarts="$n" '
    { while (match($0, /"(status|count|requests|different|not_connected|closed|timed_out|malformed|not_sent)": [0-9]+/)) {
          split(substr($0, RSTART + 1, RLENGTH - 1), part, "\": ")
          if (part[1] == "status") status = part[2]
          else if (part[1] == "count") { if (status == 200) good += part[2]; else failed += part[2] }
          else if (part[1] == "requests") all = part[2]
          else failed += part[2]
          $0 = substr($0, RSTART + RLENGTH)
      } }
    END { printf "%d restarts, %d requests, %d good, %d failed\n", restarts, all, good, failed
          exit !(good == all && good > 0 && failed == 0) }' "$work/report"
