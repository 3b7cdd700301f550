#ifndef SERVER_SLICE_H
#define SERVER_SLICE_H

/* A thread that computes keeps its CPU for a slice of 3 ms, whoever wakes up. But
 * since Linux 6.12 whoever has asked for short slices need not wait for the end of
 * it; older kernels take no notice.
 *
 * For the calling thread, which should work little and often. Asks once. */
void slice_shorten(void);

#endif
