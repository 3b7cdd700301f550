#!/bin/sh
# Build the container image, run it, ask it something, stop it.
#
#     tests/e2e/image.sh          IMAGE=attnd:latest is what it leaves behind
#
# Needs curl and either a Docker engine that answers or root on Debian,
# where buildah (chroot isolation, no daemon) does the same and is installed
# if missing. Where the base image can't be pulled, debootstrap makes one from
# the mirror that this machine's apt is set to, once: buildah and Docker keep
# it as attnd-base.
set -eu
cd "$(dirname "$0")/../.."

image=${IMAGE:-attnd:latest}
container=attnd-image-test-$$
scratch=$(mktemp -d)
base=$(sed -n 's/^ARG BASE=//p' Dockerfile)
suite=$(echo "${base#*:}" | sed 's/-slim$//')
own_base=localhost/attnd-base:$suite
engine=
runner=
passed=0
failed=0

say() { echo "image: $*"; }
die() { say "$*" >&2; exit 1; }

# check SENTENCE COMMAND...: counts, and goes on so that one run shows all.
check() {
    sentence=$1
    shift
    if "$@" >"$scratch/check" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $sentence"
    else
        failed=$((failed + 1))
        echo "FAILED  $sentence"
        sed 's/^/        /' "$scratch/check"
    fi
}

not() { ! "$@"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

pick_engine() {
    if docker info >/dev/null 2>&1; then
        engine=docker
        return
    fi
    engine=buildah
    if [ "$(id -u)" != 0 ]; then
        say "no Docker engine answers: buildah needs root, starting again with sudo"
        rm -rf "$scratch"
        exec sudo -E tests/e2e/image.sh
    fi
    export BUILDAH_ISOLATION=chroot
    need buildah buildah
    need ps procps
}

# need COMMAND PACKAGE
need() {
    command -v "$1" >/dev/null && return
    command -v apt-get >/dev/null || die "$1 is missing, and there is no apt to install it with"
    say "$1 is missing: installing the package $2"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$2" >"$scratch/apt" 2>&1 ||
        { cat "$scratch/apt"; die "can't install $2"; }
}

# Sets $base to a name that the engine has in its store.
find_base() {
    case $engine in
    docker)
        docker image inspect "$base" >/dev/null 2>&1 && return
        docker pull -q "$base" >/dev/null 2>&1 && return
        docker image inspect "$own_base" >/dev/null 2>&1 && base=$own_base && return
        ;;
    buildah)
        buildah pull -q --policy missing "$base" >/dev/null 2>&1 && return
        buildah inspect --type image "$own_base" >/dev/null 2>&1 && base=$own_base && return
        ;;
    esac
    say "$base can't be pulled: making $own_base with debootstrap"
    make_base
    base=$own_base
}

make_base() {
    need debootstrap debootstrap
    tree=$scratch/base
    sources | grep -q . || die "apt on this machine knows no Debian mirror of $suite"
    bootstrap "$tree"
    hand_over_apt "$tree"
    case $engine in
    docker)
        as_root tar -C "$tree" -c . | docker import - "$own_base" >/dev/null
        ;;
    buildah)
        buildah from -q --name "$container" scratch >/dev/null
        buildah add -q "$container" "$tree" / >/dev/null
        buildah commit -q --rm "$container" "$own_base" >/dev/null
        ;;
    esac
    as_root rm -rf --one-file-system "$tree"
}

# The Debian sources of this machine's apt for our suite, one-line style.
sources() {
    # shellcheck disable=SC2016 # apt expands these, not the shell
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$suite" '$2 ~ "^" suite "(-updates|-security|/updates)?$" && $3 == "main" {
            print "deb", $1, $2, $3 }' | sort -u
}

# debootstrap asks wget, which knows no apt.conf: hand it apt's proxy.
bootstrap() {
    mirror=$(sources | awk -v suite="$suite" '$3 == suite { print $2; exit }')
    eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
    as_root env ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
        debootstrap --variant=minbase --include=ca-certificates \
        "$suite" "$1" "$mirror" >"$scratch/debootstrap" 2>&1 ||
        { tail -n 5 "$scratch/debootstrap"; die "debootstrap failed"; }
}

# apt in the base asks whom apt here asks, trusts what it trusts, and leaves
# as little behind as apt in the slim image does.
hand_over_apt() {
    sources >"$scratch/sources.list"
    apt-config dump | grep -E '^Acquire::(https?|Check-|Retries)' >"$scratch/apt.conf" || true
    echo 'Acquire::Languages "none";' >>"$scratch/apt.conf"
    as_root cp "$scratch/sources.list" "$1/etc/apt/sources.list"
    as_root cp "$scratch/apt.conf" "$1/etc/apt/apt.conf.d/90host"
    for trusted in /etc/apt/trusted.gpg.d/. /usr/local/share/ca-certificates/. \
        /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$trusted" ] || as_root cp -rL "$trusted" "$1${trusted%/.}"
    done
    as_root find "$1/var/cache/apt" "$1/var/lib/apt/lists" -type f -delete
}

build() {
    set -- --network host -t "$image" --build-arg "BASE=$base" \
        --build-arg "VERSION=$(sed -n 's/^VERSION *:= *//p' Makefile)" \
        --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" .
    case $engine in
    docker) docker build "$@" ;;
    buildah)
        before=$(buildah images -q "$image" 2>/dev/null || true)
        buildah build --format docker --pull=never "$@" || return
        [ -z "$before" ] || [ "$before" = "$(buildah images -q "$image")" ] ||
            buildah rmi "$before" >/dev/null 2>&1 || true
        ;;
    esac
}

# inspect TEMPLATE: a field of the image's configuration, as Go prints it
inspect() {
    case $engine in
    docker) docker image inspect --format "{{.$1}}" "$image" ;;
    buildah) buildah inspect --type image --format "{{.Docker.$1}}" "$image" ;;
    esac
}

free_port() {
    port=18080
    while grep -qi ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6; do
        port=$((port + 1))
    done
    echo $port
}

# inside COMMAND...: run it in the container, in the foreground
inside() {
    case $engine in
    docker) docker exec "$container" "$@" ;;
    buildah) buildah run --network host --env "ATTND_LISTEN=$listen" "$container" -- "$@" ;;
    esac
}

start() {
    port=$(free_port)
    listen=127.0.0.1:$port
    url=http://$listen
    # A machine that pins OpenBLAS to a core type does so for a reason.
    pin=${OPENBLAS_CORETYPE:+OPENBLAS_CORETYPE=$OPENBLAS_CORETYPE}
    case $engine in
    docker)
        docker run -d --name "$container" --read-only --network host --cap-drop ALL \
            --security-opt no-new-privileges -e "ATTND_LISTEN=$listen" ${pin:+-e "$pin"} \
            "$image" >/dev/null
        ;;
    buildah)
        buildah from -q --pull-never --name "$container" "$image" >/dev/null
        entrypoint=$(inspect Config.Entrypoint | tr -d '[]')
        # shellcheck disable=SC2086 # one word an argument
        buildah run --network host --env "ATTND_LISTEN=$listen" ${pin:+--env "$pin"} \
            "$container" -- $entrypoint >"$scratch/log" 2>&1 &
        runner=$!
        ;;
    esac
}

# alive PID: there, and not only waiting to be waited for
alive() {
    case $(ps -o stat= -p "$1") in '' | Z*) false ;; esac
}

running() {
    case $engine in
    docker) [ "$(docker inspect --format '{{.State.Running}}' "$container")" = true ] ;;
    buildah) alive "$runner" ;;
    esac
}

log() {
    case $engine in
    docker) docker logs "$container" 2>&1 ;;
    buildah) cat "$scratch/log" ;;
    esac
}

wait_until_ready() {
    tries=0
    until curl -fsS -m 2 "$url/readyz" >/dev/null 2>&1; do
        running || { log; die "the container stopped before it was ready"; }
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { log; die "not ready after 60 s"; }
        sleep 0.2
    done
}

# buildah run passes no signal on: the daemon is the last of its line.
daemon_pid() {
    pid=$runner
    while child=$(ps -o pid= --ppid "$pid" | head -n 1 | tr -d ' ') && [ -n "$child" ]; do
        pid=$child
    done
    echo "$pid"
}

# The daemon's user number, as the kernel of the engine's machine has it.
uid() {
    case $engine in
    docker) docker top "$container" -o pid,uid | awk 'END { print $2 }' ;;
    buildah) ps -o uid= -p "$(daemon_pid)" | tr -d ' ' ;;
    esac
}

# SIGTERM, SIGKILL 30 s later: 0 exactly when the daemon exited with 0.
stop() {
    case $engine in
    docker)
        docker stop -t 30 "$container" >/dev/null
        status=$(docker inspect --format '{{.State.ExitCode}}' "$container")
        ;;
    buildah)
        end_by_pid "$(daemon_pid)"
        status=0
        wait "$runner" || status=$?
        ;;
    esac
    echo "exit status $status"
    [ "$status" = 0 ]
}

end_by_pid() {
    kill -TERM "$1"
    tries=0
    while alive "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || kill -KILL "$1"
        sleep 0.2
    done
}

clean_up() {
    case $engine in
    docker) docker rm -f "$container" >/dev/null 2>&1 || true ;;
    buildah)
        if [ -n "$runner" ] && alive "$runner"; then
            kill -KILL "$(daemon_pid)" 2>/dev/null || true
            wait "$runner" || true
        fi
        buildah rm "$container" >/dev/null 2>&1 || true
        ;;
    esac
    as_root rm -rf --one-file-system "$scratch"
}

# Two equal scores: weights of a half each, and the mean of the two values.
answers_attention() {
    curl -fsS -m 10 -H 'Content-Type: application/json' "$url/attention" -d '{
        "query": [[[0, 0]]], "key": [[[1, 2], [3, 4]]], "value": [[[1.5, 0.25], [3.5, 2.25]]]
    }' | tr -d ' \n' >"$scratch/answer"
    echo "it said $(cat "$scratch/answer")"
    grep -qF '"output":[[[2.5,1.25]]]' "$scratch/answer" &&
        grep -qF '"weights":[[[0.5,0.5]]]' "$scratch/answer"
}

runs_as_somebody() {
    user=$(uid)
    echo "uid $user, the image says $(inspect Config.User)"
    [ "$user" != 0 ] && [ "$(inspect Config.User)" = "$user:$user" ]
}

# Docker ran it with --read-only; buildah can't, so look for what its user
# could write. /dev, /proc and /sys are mounted, not the image's.
nothing_to_write() {
    [ "$engine" = buildah ] || return 0
    tree=$(buildah mount "$container") || return
    user=$(inspect Config.User)
    find "$tree" -xdev ! -type l \( -uid "${user%:*}" -o -gid "${user#*:}" -o -perm -o+w \) \
        >"$scratch/writable" || return
    buildah umount "$container" >/dev/null
    cat "$scratch/writable"
    [ ! -s "$scratch/writable" ]
}

listens_everywhere() { inspect Config.Env | grep -F 'ATTND_LISTEN=0.0.0.0:8080'; }
has_a_health_check() { inspect Config.Healthcheck.Test | grep -F -- '--healthcheck'; }
healthy() { inside /usr/bin/attnd --healthcheck; }

size() {
    case $engine in
    docker) docker image inspect --format '{{.Size}}' "$image" ;;
    buildah)
        tree=$(buildah mount "$container")
        du -sb "$tree" | cut -f 1
        buildah umount "$container" >/dev/null
        ;;
    esac
}

main() {
    command -v curl >/dev/null || die "curl is missing"
    pick_engine
    trap clean_up EXIT
    trap 'exit 1' HUP INT TERM
    find_base
    began=$(date +%s)
    say "building $image on $base with $engine"
    build >"$scratch/build" 2>&1 || { tail -n 40 "$scratch/build"; die "the build failed"; }
    say "built in $(($(date +%s) - began)) s"

    start
    wait_until_ready
    check "the container answers a request on /attention" answers_attention
    check "attnd --healthcheck succeeds while it serves" healthy
    check "the daemon runs as the image's numeric user, not root" runs_as_somebody
    check "the image says where to listen" listens_everywhere
    check "the image has a health check" has_a_health_check
    check "the image has nothing that its user may write" nothing_to_write
    check "SIGTERM ends it with status 0" stop
    check "attnd --healthcheck fails once it is gone" not healthy
    say "$image is $(($(size) / 1000000)) MB"
    echo "image: $passed passed, $failed failed"
    [ $failed = 0 ]
}

main
