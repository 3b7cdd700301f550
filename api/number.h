#ifndef API_NUMBER_H
#define API_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers as JSON text, to and from float32, float64 and int64.
 *
 * Exact: reading gives the nearest value to the decimal as written (a float32
 * never by way of a double), writing gives the shortest decimal that reads
 * back. Linear in the text, which may be megabytes. No locale, no allocation,
 * no state: any thread, any time. It knows nothing of arrays, white space,
 * NaN or Infinity; those belong to the wire formats. */

/* One RFC 8259 number at `text`, nothing at or past `end` being looked at.
 * Returns the bytes it takes; 0 when what stands there is no number: "+1",
 * ".5", "1.", "1e", "01", "-". The byte after the number is the caller's to
 * judge ("1x" takes 1).
 *
 * Ties go to even. An overflow gives an infinity, which the caller refuses;
 * an underflow a denormal, or the zero of the same sign. */
size_t number_read_f32(const char *text, const char *end, float *value);
size_t number_read_f64(const char *text, const char *end, double *value);

enum number_int {
    NUMBER_INT_OK,
    NUMBER_INT_FRACTION, /* 1.5, 1e-1: not an integer      */
    NUMBER_INT_RANGE     /* an integer, but no int64: 1e19 */
};

/* The integer that a whole number says in any spelling: 2, 2.0, 2e0, 20e-1.
 * `text` is a number that one of the two above took in full. */
enum number_int number_read_i64(const char *text, size_t len, int64_t *value);

/* The longest texts: -1.23456789e-38, -1.2345678901234567e-308, INT64_MIN. */
enum { NUMBER_F32_TEXT = 15, NUMBER_F64_TEXT = 24, NUMBER_I64_TEXT = 20 };

/* The most bytes that a write touches, the text's end or not: what must be
 * free at `out`. */
enum { NUMBER_F32_BYTES = 22, NUMBER_F64_BYTES = 34, NUMBER_I64_BYTES = 20 };

/* Each returns the bytes written; no NUL follows.
 *
 * The shortest decimal that reads back to the same value and, among those, the
 * nearest to it (the even one of two), as 0.00123 or 1.23e-3, whichever is
 * shorter, the first when they are equal: 1, 100, 1e3, 0.5, 1e-7, 1.5e10,
 * 16777216. Negative zero is "-0.0", since many readers take "-0" for the
 * integer 0. Of float32, the 63 values next above 1 (below -1) have nine digits,
 * 1.00000012, so that their distance from 1 is told within 1 %. `value` must be
 * finite. */
size_t number_write_f32(float value, char *out);
size_t number_write_f64(double value, char *out);
size_t number_write_i64(int64_t value, char *out);

#endif
