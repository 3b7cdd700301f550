#!/bin/sh
# Adds up what gcov says of a build with --coverage whose tests have run, for
# the code in which every line should be reached: api/, server/, config/, and the
# shape and mask code of core/.
#   coverage.sh BUILD
# A branch counts when it was taken at least once.
set -eu

build=$1

for source in api/*.c server/*.c config/*.c core/shape.c core/tensor.c core/mask.c core/mha_check.c core/mha_mask.c; do
    object=$build/${source%.c}.o
    [ -f "$object" ] || continue
    gcov -b -n -o "$object" "$source" 2>/dev/null | awk -v source="$source" '
        /^File / { ours = index($0, "\x27" source "\x27") > 0 }
        ours && /^Lines executed:/ { sub(".*:", ""); lines = $0 }
        ours && /^Taken at least once:/ { sub(".*:", ""); branches = $0 }
        END { split(lines, l, "% of "); split(branches, b, "% of ")
              print source, l[1] + 0, l[2] + 0, b[1] + 0, b[2] + 0 }'
done | awk '
    function share(part, all) { return all == 0 ? 100 : 100 * part / all }
    function show(name, lh, lines, bh, branches) {
        printf "%-32s %6d lines %6.1f %%  %6d branches %6.1f %%\n", name, lines, share(lh, lines), branches,
               share(bh, branches)
    }
    { folder = $1; sub("/.*", "", folder)
      lh = $2 * $3 / 100; bh = $4 * $5 / 100
      show($1, lh, $3, bh, $5)
      LH[folder] += lh; L[folder] += $3; BH[folder] += bh; B[folder] += $5
      allLH += lh; allL += $3; allBH += bh; allB += $5 }
    END { print ""
          for (folder in L) show(folder, LH[folder], L[folder], BH[folder], B[folder])
          show("all", allLH, allL, allBH, allB)
          exit allL == 0 }'
