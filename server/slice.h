#ifndef SERVER_SLICE_H
#define SERVER_SLICE_H

/* A thread that computes keeps its CPU for a slice of 3 ms while others wake up.
 * Since Linux 6.12 one that has asked for short slices comes before; older
 * kernels take no notice.
 *
 * For the calling thread, which should work little and often. Asks once. */
void slice_shorten(void);

#endif
