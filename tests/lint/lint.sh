#!/bin/sh
# The house rules that a program can check. Prints what breaks them; exit 1.
set -u
failed=0
check() { "$@" || failed=1; }

sources=$(git ls-files '*.c' '*.h' '*.def')
tests=$(git ls-files 'tests/*.c')
product=$(git ls-files 'core/*.[ch]' 'api/*.[ch]' 'config/*.[ch]' 'server/*.[ch]')

# shellcheck disable=SC2086 # lists of words, all of them
{
    check awk -f tests/lint/includes.awk $sources
    check awk -v max=60 -v file=700 -f tests/lint/length.awk $product
    check awk -v max=100 -v file=1500 -f tests/lint/length.awk $tests
}

forbid() { # pattern, why, pathspec...
    pattern=$1 why=$2
    shift 2
    if git grep -nIE "$pattern" -- "$@"; then
        echo "  ^ $why"
        failed=1
    fi
}
forbid '\b(TO[D]O|FIXM[E]|XX[X]|HAC[K])\b' 'do it or file it' '*.[ch]' '*.sh' '*.def' '*.py' '*.mjs' Makefile Dockerfile
forbid '\b(alloca|setlocale|gets|strcpy|strcat|sprintf|strtok|atoi)\(' 'not in this house' '*.[ch]'
forbid '^[^#]*(-ffast-math|-march=)' 'CPU features are chosen at run time' Makefile
forbid '[[:blank:]]+$' 'white space at the end' '*.[ch]' '*.sh' '*.def' '*.md' Makefile

extra=$(git ls-files | cut -d/ -f1 | sort -u | grep -vxE \
    'server|core|api|config|tests|Dockerfile|Makefile|README.md|LICENSE|CONTRIBUTING.md|CHANGELOG.md|\..*')
if [ -n "$extra" ]; then
    echo "at the top level and not agreed: $extra"
    failed=1
fi

for header in $(git ls-files 'core/*.h' 'api/*.h' 'config/*.h' 'server/*.h'); do
    guard=$(echo "$header" | tr 'a-z/.' 'A-Z__')
    grep -q "^#ifndef $guard\$" "$header" || { echo "$header: no guard $guard"; failed=1; }
done

# A module stands in the README of its folder, a test in that of the tests.
listed() { # file, pattern, where
    grep -qw -- "$2" "$3" || { echo "$1: not in $3"; failed=1; }
}
for file in $product; do
    name=${file##*/}
    listed "$file" "${name%.*}" "${file%%/*}/README.md"
done
for file in $(git ls-files 'tests/*_test.c' 'tests/*_fuzz.c'); do
    listed "$file" "(${file#tests/})" tests/README.md
done

# A row of tests/faults/README.md names tests there are, and no test there is without.
tests_of() { # file...
    cat "$@" | tr -d ' \n' | grep -oE 'cmocka_unit_test[a-z_]*\([a-z0-9_]+' | sed 's/.*(//'
}
rows=$(grep '^|' tests/faults/README.md | grep -oE "\`[a-z0-9]+(_[a-z0-9]+){2,}\`" | tr -d '`')
# shellcheck disable=SC2046,SC2086
{
    all=$(tests_of $(git ls-files 'tests/*_test.c')) own=$(tests_of $(git ls-files 'tests/faults/*_test.c'))
    for name in $rows; do
        echo "$all" | grep -qx "$name" || { echo "tests/faults/README.md: no test $name"; failed=1; }
    done
    for name in $own; do
        echo "$rows" | grep -qx "$name" || { echo "$name: no row of tests/faults/README.md"; failed=1; }
    done
}

if command -v shellcheck >/dev/null; then
    # shellcheck disable=SC2046
    check shellcheck $(git ls-files '*.sh') .ci/run
else
    echo "lint: no shellcheck here, shell scripts not looked at"
fi
[ "$failed" -eq 0 ] && echo "lint: clean"
exit "$failed"
