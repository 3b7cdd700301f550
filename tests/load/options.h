#ifndef TESTS_LOAD_OPTIONS_H
#define TESTS_LOAD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* What the load generator was told to do. Whatever is not understood, and any
 * target that is not this machine's loopback, is refused in one line. */
enum {
    OPTIONS_RATES = 16,
    OPTIONS_BODIES = 16,
    OPTIONS_HEAD_BYTES = 4096
};

enum rate_kind {
    RATE_CLOSED,   /* each connection sends when its answer has come; `value`
                      connections, or all of them when that is 0 */
    RATE_FIXED,    /* `value` requests a second */
    RATE_OF_CLOSED /* `value` times what the last closed run reached */
};

struct rate {
    enum rate_kind kind;
    double value;
};

struct body {
    char *bytes; /* NULL: a request without a body */
    size_t len;
};

struct options {
    struct sockaddr_storage address;
    socklen_t address_len;
    char url[256], path[1024], host[64]; /* host as in a Host header */
    char method[16];
    char headers[OPTIONS_HEAD_BYTES]; /* each with its CR LF */
    struct body body[OPTIONS_BODIES]; /* taken in turn */
    int bodies;                       /* at least 1 */
    struct rate rate[OPTIONS_RATES];
    int rates;
    int idle;             /* further connections that send nothing */
    int connections;      /* most at a time; open-loop runs open what they need */
    double duration_s;    /* of sending, for each rate, in all rounds */
    double warmup_s;      /* of each round, not counted */
    int rounds;           /* of all rates in turn */
    int64_t count;        /* most requests for each rate */
    int64_t timeout_ns;   /* for an answer, and for a free connection */
    double bad, aborting; /* shares, 0 to 1 */
    uint64_t seed;
    bool is_random;  /* gaps between requests, around what the rate says */
    bool reconnects; /* a connection for each request */
    pid_t watched;   /* 0: none */
    const char *json; /* file name, or NULL */
    double flat_mib;  /* growth of its memory an hour that is a failure; 0: none */
    bool judges;
};

/* False with the complaint in `why`; no allocation outlives a false. */
bool options_read(struct options *options, int argc, char **argv, char *why,
                  size_t size);

void options_free(struct options *options);

extern const char options_help[];

#endif
