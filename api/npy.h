#ifndef API_NPY_H
#define API_NPY_H

#include "api/wire.h"

/* NumPy's format for one array, from bytes in memory.
 *
 *     6 bytes    "\x93NUMPY", then the version: 1.0, 2.0 or 3.0
 *     2 bytes    length of the header, little-endian (4 from version 2.0 on)
 *     header     a Python dictionary: {'descr': '<f4', 'fortran_order': False,
 *                'shape': (2, 3), }, then spaces and a newline
 *     data       the elements, in one of the two orders
 *
 * The dictionary has these three keys, each once, and plain literals: what
 * numpy.save() writes, not all that Python could evaluate. It converts nothing,
 * and gives the array no meaning. */

enum { NPY_DESCR_BYTES = 32 };

struct npy {
    enum dtype dtype; /* DTYPE_COUNT: no dtype of this service */
    bool big_endian;
    bool fortran_order;
    char descr[NPY_DESCR_BYTES]; /* as it was written; "[...]" for a structure */
    uint64_t rank;               /* 0 is a scalar */
    int64_t dim[TENSOR_MAX_RANK]; /* the first of them, 0 included */
    const uint8_t *data;          /* in the bytes that were read */
};

/* Takes no memory. The data is exactly as long as dtype and shape say; where
 * either is none of this service's, its length is not looked at. ERR_REQUEST,
 * where "". */
bool npy_decode(struct bytes file, struct npy *out, struct error *err);

/* The bytes before the data of a packed tensor of F32 or F64, in a file that is
 * written, and the most they can be. Returns how many they are. */
enum { NPY_HEADER_BYTES = 192 };
size_t npy_write_header(const struct tensor *t, char out[NPY_HEADER_BYTES]);

#endif
