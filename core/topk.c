#include "core/topk.h"

static double at(const void *row, enum dtype dtype, int64_t i)
{
    return dtype == DTYPE_F64 ? ((const double *)row)[i]
                              : (double)((const float *)row)[i];
}

static void put(void *row, enum dtype dtype, int64_t i, double value)
{
    if (dtype == DTYPE_F64)
        ((double *)row)[i] = value;
    else
        ((float *)row)[i] = (float)value;
}

struct heap {
    const void *row;
    enum dtype dtype;
    int64_t *index; /* the worst of those kept at the root */
};

/* Does element a come after element b in the answer? */
static bool after(const struct heap *h, int64_t a, int64_t b)
{
    double x = at(h->row, h->dtype, a), y = at(h->row, h->dtype, b);

    return x < y || (x == y && a > b);
}

static void sift(struct heap *h, int64_t root, int64_t count)
{
    int64_t moving = h->index[root];

    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count &&
            after(h, h->index[child + 1], h->index[child]))
            child++;
        if (!after(h, h->index[child], moving))
            break;
        h->index[root] = h->index[child];
    }
    h->index[root] = moving;
}

static void keep_largest(struct heap *h, int64_t count, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        h->index[i] = i;
    for (int64_t i = k / 2 - 1; i >= 0; i--)
        sift(h, i, k);
    for (int64_t i = k; i < count; i++) {
        if (at(h->row, h->dtype, i) <= at(h->row, h->dtype, h->index[0]))
            continue; /* a tie stays with the lower index */
        h->index[0] = i;
        sift(h, 0, k);
    }
}

/* Moving the worst to the end, again and again, leaves the best in front. */
static void sort(struct heap *h, int64_t k)
{
    for (int64_t end = k - 1; end > 0; end--) {
        int64_t worst = h->index[0];

        h->index[0] = h->index[end];
        h->index[end] = worst;
        sift(h, 0, end);
    }
}

void topk_row(const void *row, enum dtype dtype, int64_t count, int64_t k,
              int64_t *indices, void *values, void *kept)
{
    struct heap heap = { .row = row, .dtype = dtype, .index = indices };
    double sum = 0;

    keep_largest(&heap, count, k);
    sort(&heap, k);
    for (int64_t i = 0; i < k; i++) {
        double value = at(row, dtype, indices[i]);

        put(values, dtype, i, value);
        sum += value;
    }
    put(kept, dtype, 0, sum);
}
