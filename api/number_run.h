#ifndef API_NUMBER_RUN_H
#define API_NUMBER_RUN_H

#include "api/number_array.h"

/* What number_array.c chooses from. */

/* A run while it is read. */
struct number_run {
    const char *begin;
    const char *at; /* behind its last number */
    const char *end;
    size_t row; /* numbers in a row; 0: no rows */
    size_t room;
    size_t count;
};

/* Each reads on from `run->at` as far as it pays. What is left, mistakes
 * included, is for one number at a time. */
void number_read_avx2_f32(struct number_run *run, float *out);
void number_read_avx2_f64(struct number_run *run, double *out);
void number_read_avx512_f32(struct number_run *run, float *out);
void number_read_avx512_f64(struct number_run *run, double *out);

/* As in number_array.h. */
void number_count_avx2(const char *text, const char *end,
                       struct number_tally *tally);
void number_count_avx512(const char *text, const char *end,
                         struct number_tally *tally);
char *number_write_avx2_f32(const float *values, size_t count, char *out);
char *number_write_avx2_f64(const double *values, size_t count, char *out);
char *number_write_avx2_rows_f32(const float *values, size_t count, size_t row,
                                 char *out);
char *number_write_avx512_f32(const float *values, size_t count, char *out);
char *number_write_avx512_f64(const double *values, size_t count, char *out);
char *number_write_singly_f64(const double *values, size_t count, char *out);

#endif
