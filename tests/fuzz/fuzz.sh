#!/bin/sh
# Runs fuzz targets for some time each, and keeps what they learnt.
#   BUILD=FOLDER fuzz.sh ENGINE SECONDS PROGRAM...
# ENGINE is libfuzzer or afl, with which the programs were built. Prints a line
# for each; what broke one lies in build/fuzz/found, and the exit is 1.
#
# How often each target ran is added to tests/fuzz/counts.tsv. What both engines
# find lies in build/fuzz/corpus; of that libfuzzer keeps, beside the files in
# tests/fuzz/corpus/TARGET that have a name, the fewest and smallest that reach
# each edge of the program that those don't, up to MOST files.
set -u

MOST=150
engine=$1 seconds=$2
shift 2
work=build/fuzz
counts=tests/fuzz/counts.tsv
dictionary=$work/dictionary
failed=0

export OPENBLAS_NUM_THREADS=1 # read when it is loaded, before the target could ask
symbolize=1
[ "$engine" = afl ] && symbolize=0 # it insists
export ASAN_OPTIONS=abort_on_error=1:malloc_context_size=4:quarantine_size_mb=16:symbolize=$symbolize
export AFL_SKIP_CPUFREQ=1 AFL_NO_AFFINITY=1 AFL_NO_UI=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1

# Every name and word that the program knows, bare and as a JSON string.
write_dictionary() {
    {
        sed -n 's/^[A-Z]*(\([a-z_0-9]*\),.*/\1/p' api/fields.def config/options.def
        sed -n 's/^ROUTE([^"]*"\([^"]*\)".*/\1/p' server/routes.def
        grep -oh '"[A-Za-z_0-9./-]\{1,32\}"' api/*.c config/*.c core/*.c server/*.c | tr -d '"'
    } | sort -u | grep -v '\.\(h\|def\)$' | sed 's/.*/"&"\n"\\"&\\""/' >"$dictionary"
}

# Longest input: what is longer only repeats itself, and slows the rest.
most_bytes() {
    case $1 in
    base64 | keys | number) echo 256 ;;
    http | coding) echo 1024 ;;
    *) echo 512 ;;
    esac
}

count() ( # target, executions
    flock 9
    touch "$counts"
    awk -v target="$1" -v engine="$engine" -v n="${2:-0}" '
        BEGIN { FS = OFS = "\t" }
        $1 == target && $2 == engine { $3 += n; seen = 1 }
        { print $1, $2, sprintf("%.0f", $3) }
        END { if (!seen) print target, engine, n }
    ' "$counts" | sort >"$work/counts" && mv "$work/counts" "$counts"
) 9>"$work/lock"

is_found() { # by a fuzzer: named by its digest
    expr "${1##*/}" : '[0-9a-f]\{40\}$' >/dev/null
}

keep() { # target, program
    committed=tests/fuzz/corpus/$1 kept=$work/kept/$1
    rm -rf "$kept"
    mkdir -p "$kept"
    for file in "$committed"/*; do
        is_found "$file" || cp "$file" "$kept"
    done
    "$2" -merge=1 -use_counters=0 -max_len="$(most_bytes "$1")" \
        "$kept" "$committed" "$work/corpus/$1" >"$work/$1.merge.log" 2>&1 || return 1
    for file in "$committed"/*; do
        if is_found "$file"; then rm "$file"; fi
    done
    found=0
    for file in "$kept"/*; do
        if is_found "$file" && [ "$found" -lt "$MOST" ]; then
            found=$((found + 1))
            cp "$file" "$committed"
        fi
    done
}

run_libfuzzer() { # target, program
    "$2" -max_total_time="$seconds" -max_len="$(most_bytes "$1")" -timeout=1200 -report_slow_units=1200 \
        -dict="$dictionary" -print_final_stats=1 -artifact_prefix="$work/found/$1-" \
        "$work/corpus/$1" "tests/fuzz/corpus/$1" >"$work/$1.log" 2>&1
    status=$?
    count "$1" "$(sed -n 's/^stat::number_of_executed_units: //p' "$work/$1.log")"
    [ "$status" -eq 0 ] && keep "$1" "$2"
}

run_afl() { # target, program
    rm -rf "$work/afl/$1"
    mkdir -p "$work/afl/$1/in"
    find "tests/fuzz/corpus/$1" -type f -size +0 -exec cp {} "$work/afl/$1/in" \;
    afl-fuzz -V "$seconds" -G "$(most_bytes "$1")" -t 10000 -m none -x "$dictionary" \
        -i "$work/afl/$1/in" -o "$work/afl/$1/out" -- "$2" >"$work/$1.log" 2>&1
    status=$?
    count "$1" "$(sed -n 's/^execs_done *: //p' "$work/afl/$1/out/default/fuzzer_stats")"
    for file in "$work/afl/$1/out/default/queue/"id:*; do
        cp "$file" "$work/corpus/$1/$(sha1sum <"$file" | cut -c1-40)"
    done
    for file in "$work/afl/$1/out/default/crashes/"id:*; do
        [ -e "$file" ] || continue
        cp "$file" "$work/found/$1-$(sha1sum <"$file" | cut -c1-40)"
        status=1
    done
    return "$status"
}

run() {
    case $engine in
    libfuzzer) run_libfuzzer "$@" ;;
    afl) run_afl "$@" ;;
    *) echo "no such engine: $engine" && return 1 ;;
    esac
}

mkdir -p "$work/found"
write_dictionary
for program in "$@"; do
    target=$(basename "$program" _fuzz)
    mkdir -p "$work/corpus/$target" "tests/fuzz/corpus/$target"
    if run "$target" "$program"; then
        result=clean
    else
        result="FAILED: $work/$target.log, $work/found" failed=1
    fi
    ran=$(awk -v t="$target" -v e="$engine" '$1 == t && $2 == e { print $3 }' "$counts")
    files=$(find "tests/fuzz/corpus/$target" -type f | wc -l)
    echo "$target: $ran executions so far, $files files, $result"
done
exit "$failed"
