#ifndef API_NUMBER_ARRAY_H
#define API_NUMBER_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Many numbers at once, as JSON arrays hold them, by the best that the
 * processor has. Value for value and byte for byte what number.h gives for
 * each of them. No locale, no allocation; any thread once number_select() has
 * returned. It knows nothing of what stands around the numbers. */

/* Chooses the level for `features` (cpu_features()) whose name is not above
 * `ceiling`, with the names that kernels_select() knows. Before the first call
 * all is portable. Once, at the start: no other function here may run
 * meanwhile. False only when `ceiling` is no such name. */
bool number_select(uint32_t features, const char *ceiling);

/* "portable", "avx2" or "avx512". */
const char *number_selected(void);

/* Numbers with commas between them and white space where JSON has it, until
 * something else comes, `end`, or `room` of them are read. *count becomes how
 * many are in `out`. Returns the byte behind the last one, or `text` when there
 * is none: what follows, a comma included, is the caller's to judge.
 *
 * An infinity, which is an overflow, ends the run: only the last of them can
 * be one. Nothing at or past `end` is looked at. */
const char *number_read_run_f32(const char *text, const char *end, float *out,
                                size_t room, size_t *count);
const char *number_read_run_f64(const char *text, const char *end, double *out,
                                size_t room, size_t *count);

/* The same for rows of a nested array: `text` is behind a row's bracket, and
 * behind every `row` numbers, at least 1, the run goes on only with "],[", with
 * white space anywhere. The last row may be cut short. */
const char *number_read_rows_f32(const char *text, const char *end, size_t row,
                                 float *out, size_t room, size_t *count);
const char *number_read_rows_f64(const char *text, const char *end, size_t row,
                                 double *out, size_t room, size_t *count);

/* Where they go: float, or double where `wide`. */
struct number_place {
    bool wide;
    void *data;
    size_t room;
};

/* The one or the other, without rows where `row` is 0, from number `first` of the
 * place on. */
const char *number_read(const char *text, const char *end, size_t row,
                        const struct number_place *to, size_t first,
                        size_t *count);

/* Adds up what stands between numbers. An array without quotes has at most one
 * number more than commas. */
struct number_tally {
    size_t commas;
    int64_t open; /* brackets and braces opened, less those closed */
};
void number_count(const char *text, const char *end,
                  struct number_tally *tally);

/* The texts of number_write_f32(), or of number_write_f64(), with commas
 * between them, and `null` for what is not finite. Returns the byte behind the
 * last. At most count * NUMBER_F32_BYTES (NUMBER_F64_BYTES) are touched. */
char *number_write_run_f32(const float *values, size_t count, char *out);
char *number_write_run_f64(const double *values, size_t count, char *out);

/* The same for rows of `row` numbers, at least 1, of which `count` is a
 * multiple: "],[" between them. */
char *number_write_rows_f32(const float *values, size_t count, size_t row,
                            char *out);

#endif
