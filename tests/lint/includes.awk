# Refuses an #include that points up the stack, and a library away from home.
#   awk -f includes.awk FILE...
BEGIN {
    split("server:server api config core,api:api core,config:config core,core:core", rows, ",")
    for (i in rows) {
        split(rows[i], row, ":")
        allowed[row[1]] = " " row[2] " "
    }
    home["microhttpd.h"] = "^server/http(_response)?\\.c$"
    home["jansson.h"]    = "^tests/" # the second opinion on our JSON
    home["cblas.h"]      = "^core/kernels/portable\\.c$"
    home["immintrin.h"]  = "^(core/kernels/|api/number|api/base64_)"
    home["gnutls/crypto.h"] = "^server/digest\\.c$"
    home["zlib.h"]       = "^api/gzip\\.c$"
    home["zstd.h"]       = "^api/zstd\\.c$"
    home["zstd_errors.h"] = "^api/zstd\\.c$"
    home["gnutls/abstract.h"] = "^server/tls\\.h$"
    home["pthread.h"]    = "^server/"
    only["config"] = "core/error.h" # of core, config sees nothing else
}
/^#[ \t]*include "/ {
    split(FILENAME, from, "/"); split($2, to, "[\"/]")
    name = $2; gsub(/"/, "", name)
    if ((from[1] in allowed) && index(allowed[from[1]], " " to[2] " ") == 0)
        bad("may not include " $2)
    if ((from[1] in only) && to[2] == "core" && name != only[from[1]])
        bad("may include of core only " only[from[1]])
}
/^#[ \t]*include </ {
    name = substr($2, 2, length($2) - 2)
    if (FILENAME !~ /^tests\// && (name in home) && FILENAME !~ home[name])
        bad("<" name "> belongs in " home[name])
}
function bad(why) { print FILENAME ":" FNR ": " why; failed = 1 }
END { exit failed }
