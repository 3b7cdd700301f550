# Refuses a function longer than `max` lines, and a file longer than `file`.
#   awk -v max=60 -v file=700 -f length.awk FILE...
# What must be longer says why:  /* long: one case per token */  above it.
FNR == 1 { file_end(); inside = 0; excuse = 0; file_excuse = 0; name = FILENAME }
{ lines = FNR }
/\/\* long: / { excuse = 1; if (FNR < 40) file_excuse = 1 }
/^\{/ { inside = 1; first = FNR; next }
/^\}/ && inside {
    n = FNR - first - 1
    if (n > max && !excuse)
        bad(first, "function of " n " lines (limit " max ")")
    inside = 0; excuse = 0
}
function file_end() {
    if (name != "" && lines > file && !file_excuse)
        bad(lines, "file of " lines " lines (limit " file ")")
}
function bad(line, why) { print name ":" line ": " why; failed = 1 }
END { file_end(); exit failed }
