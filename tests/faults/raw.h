#ifndef TESTS_FAULTS_RAW_H
#define TESTS_FAULTS_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes to a server of 127.0.0.1, exactly these, in these pieces and at this
 * pace, and what came back. No HTTP library would send most of it. Fails the
 * running test only when it can't connect or has no memory; what the server
 * does is for the test to judge. One thread. */

enum raw_end {      /* after the last byte was sent */
    RAW_STAY,       /* read on */
    RAW_HALF_CLOSE, /* the same, with our side shut down */
    RAW_CLOSE,      /* leave at once */
    RAW_RESET       /* leave with a TCP reset */
};

struct raw_script {
    const char *bytes;
    size_t len;       /* 0: up to the NUL */
    const char *tail; /* after that, `tails` times; NULL: nothing */
    size_t tail_len;  /* 0: up to the NUL */
    int64_t tails;
    size_t piece;     /* bytes a send; 0: as many as the socket takes */
    int pause_ms;     /* between two pieces */
    enum raw_end end;
    bool reads_last;  /* nothing before all is sent, as Python's client does */
    bool is_head;     /* answers have no bodies */
    int replies;      /* read so many; 0: to the end of the connection */
    int deadline_ms;  /* in all; 0: 10 s */
};

struct raw_reply {
    int status;
    int interim; /* 1xx before it */
    bool closes; /* says so */
    const char *head, *body; /* into the answer's bytes */
    size_t head_len, body_len;
};

enum { RAW_REPLIES = 64 }; /* of more, the rest is only in the bytes */

struct raw_answer {
    char *bytes; /* NUL-terminated; raw_free() */
    size_t len;
    struct raw_reply reply[RAW_REPLIES];
    int replies;     /* complete ones */
    int64_t sent;    /* bytes of the script */
    bool sent_all;
    bool closed;     /* the server ended the connection */
    bool was_reset;  /* not in order */
    bool malformed;  /* something came that is no response, or half of one */
    int64_t first_ns, end_ns; /* from the connection to the first byte back,
                                 and to the end; 0: none came */
};

void raw_run(uint16_t port, const struct raw_script *script,
             struct raw_answer *answer);

/* A script of nothing but these bytes. */
void raw_say(uint16_t port, const char *text, struct raw_answer *answer);

void raw_free(struct raw_answer *answer);

/* The status of the first reply; 0 when none is complete. */
int raw_status(const struct raw_answer *answer);

/* The value of a header in `out`, or NULL when the reply doesn't have it. */
char *raw_header(const struct raw_reply *reply, const char *name, char *out,
                 size_t size);

/* A connected socket for what no script says; the caller closes it. */
int raw_connect(uint16_t port);

int64_t raw_now_ns(void);

#endif
