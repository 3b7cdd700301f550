#!/bin/sh
# Adds up what gcov says of a build with --coverage whose tests have run, and
# sets it against the goals. Exit 0 when they are met.
#   coverage.sh BUILD
# Counted are the lines and branches of api/, server/, config/ and of the shape
# and mask code of core/, headers too, as gcc -O1 sees them. What several objects
# have of a header counts once, hit when one of them hit it; within an object
# every copy of an inlined function brings its branches, so a level of SIMD that
# never ran shows. A branch is one way out of a condition, hit when it was taken
# once. Left out are the branches of assert(): the other way is a bug.
# BUILD/missed.txt has each line with something that was not hit.
set -eu

build=$1
missed=$build/missed.txt

find "$build/api" "$build/server" "$build/config" "$build/core" -name '*.gcno' |
    sed "s|^$build/||; s|\.gcno\$||" | sort | while read -r name; do
    gcov -b -c -t -o "$build/$name.o" "$name.c" 2>/dev/null
done | awk -v missed="$missed" -v line_goal=95 -v branch_goal=85 '
    function area_of(file) {
        if (file ~ /^core\/(shape|tensor|mask|mha_check|mha_mask)\./)
            return "shape and mask"
        return file ~ /^(api|server|config)\// ? substr(file, 1, index(file, "/") - 1) : ""
    }
    function share(hit, all) { return all == 0 ? 100 : 100 * hit / all }
    function show(name, hit, all, branch_hit, branches, tail) {
        printf "%-32s %6d lines %6.1f %% %7d branches %6.1f %%%s\n",
               name, all, share(hit, all), branches, share(branch_hit, branches), tail
    }
    { colon = index($0, ":") }
    /^ +-: +0:Source:/ { file = substr($0, index($0, "Source:") + 7); area = area_of(file); next }
    area == "" { next }
    /^branch / {
        if (asserting)
            next
        key = line SUBSEP n++
        if (!(key in branch))
            ways[line] = n
        branch[key] += $3 == "taken" && $4 > 0
        next
    }
    /^ *[-#=0-9]+\*?: *[0-9]+:/ {
        at = substr($0, colon + 1)
        line = file SUBSEP at + 0
        text = substr(at, index(at, ":") + 1)
        asserting = text ~ /^ *assert\(/ || (asserting && !closed)
        closed = text ~ /;$/
        n = 0
        if ($1 ~ /^-/)
            next
        if (!(line in times)) {
            times[line] = 0
            order[++count] = line
            source[line] = text
        }
        times[line] += $1 + 0
    }
    END {
        for (i = 1; i <= count; i++) {
            line = order[i]
            split(line, part, SUBSEP)
            file = part[1]
            L[file]++
            LH[file] += times[line] > 0
            B[file] += ways[line]
            taken = 0
            for (n = 0; n < ways[line]; n++)
                taken += branch[line, n] > 0
            BH[file] += taken
            if (times[line] == 0)
                print file ":" part[2] ": never reached: " source[line] >missed
            else if (taken < ways[line])
                printf "%s:%d: %d of %d branches: %s\n", file, part[2], taken, ways[line], source[line] >missed
        }
        for (file in L) {
            area = area_of(file)
            AL[area] += L[file]; ALH[area] += LH[file]; AB[area] += B[file]; ABH[area] += BH[file]
            print L[file] - LH[file] + B[file] - BH[file], file >(missed ".files")
        }
        close(missed ".files")
        print "most missed:"
        worst = "sort -k1,1nr -k2 " missed ".files"
        for (i = 0; i < 12 && (worst | getline row) > 0; i++) {
            split(row, part, " ")
            file = part[2]
            show(file, LH[file], L[file], BH[file], B[file], "")
        }
        print ""
        areas = split("api,server,config,shape and mask", name, ",")
        for (i = 1; i <= areas; i++) {
            area = name[i]
            met = share(ALH[area], AL[area]) >= line_goal && share(ABH[area], AB[area]) >= branch_goal
            failed += !met
            show(area, ALH[area], AL[area], ABH[area], AB[area], met ? "  met" : "  NOT MET")
        }
        printf "goals: %d %% of the lines, %d %% of the branches\n", line_goal, branch_goal
        exit failed > 0
    }'
