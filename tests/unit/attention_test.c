#include "core/kernels/kernels.h"
#include "tests/unit/attention_truth.h"

#include <pthread.h>

/* attention_run() against a loop that knows no tiles, no kernels and no float,
 * and the promises that are about bits. */

/* Numbers are of size one and rows of 64, so a score errs by a few 1e-6 and a
 * weight by as much of itself; double leaves nine digits of room. */
static const double NEAR_F32 = 2e-5, NEAR_F64 = 1e-12;

/* ---- threads ---- */

enum { MOST_THREADS = 8 };

struct threads {
    struct parallel parallel;
    int count;
    int64_t next, pieces;
    parallel_piece *piece;
    void *arg;
    bool failed;
};

static void *run_thread(void *arg)
{
    struct threads *t = arg;
    struct arena scratch;

    arena_init(&scratch, MEMORY);
    for (;;) {
        int64_t i = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED);
        struct arena_mark mark = arena_mark(&scratch);

        if (i >= t->pieces)
            break;
        if (!t->piece(t->arg, i, &scratch))
            __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
        arena_release(&scratch, mark);
    }
    arena_free(&scratch);
    return NULL;
}

static bool run_threads(struct parallel *self, int64_t pieces,
                        parallel_piece *piece, void *arg)
{
    struct threads *t = (struct threads *)self;
    pthread_t id[MOST_THREADS];

    t->next = 0;
    t->pieces = pieces;
    t->piece = piece;
    t->arg = arg;
    for (int i = 0; i < t->count; i++)
        assert_int_equal(pthread_create(&id[i], NULL, run_thread, t), 0);
    for (int i = 0; i < t->count; i++)
        pthread_join(id[i], NULL);
    return !t->failed;
}

static const char *top; /* of the levels that tests run at */

static const struct kernels *kernels_at(const char *ceiling)
{
    static struct kernels kernels;

    assert_true(kernels_select(cpu_features(), ceiling, &kernels));
    return &kernels;
}

static void run_on(const struct attention *a, const struct kernels *kernels,
                   int count)
{
    struct threads threads = { .parallel.run = run_threads, .count = count };

    assert_true(attention_run(a, kernels, &threads.parallel));
}

/* With exactly the scratch it asks for. */
static void run_in_order(const struct attention *a,
                         const struct kernels *kernels)
{
    size_t bytes = (size_t)attention_scratch_bytes(a);
    struct arena scratch;
    struct parallel_serial serial;

    arena_init(&scratch, bytes);
    parallel_serial_init(&serial, &scratch);
    assert_true(attention_run(a, kernels, &serial.parallel));
    arena_free(&scratch);
}

static void run(const struct attention *a)
{
    run_in_order(a, kernels_at(top));
}

/* ---- against the plain loop ---- */

static int64_t random_size(void)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 17, 40, 63, 64, 65, 127, 128,
                                     129, 150 };

    return sizes[random_below(sizeof sizes / sizeof *sizes)];
}

static void add_random_masks(struct attention *a)
{
    struct mask *m = &a->mask;

    if (one_in(3))
        m->shift = one_in(2) ? a->S - a->L : 0;
    if (one_in(3))
        m->right = one_in(2) ? 0 : random_below(a->S + 2);
    if (one_in(4))
        m->left = random_below(a->S + 2);
    if (one_in(3))
        m->key_hidden = new_padding(a);
    if (one_in(4))
        m->key_bias = new_numbers(a->dtype, a->N * a->S);
    if (one_in(3)) {
        m->hidden = new_mask(a, DTYPE_BOOL, random_below(16));
        m->hides_when = (uint8_t)one_in(2);
    }
    if (one_in(3))
        m->bias = new_mask(a, a->dtype, random_below(16));
}

static struct attention mixed_problem(enum dtype dtype, int64_t H, int64_t G,
                                      int64_t L)
{
    static const int64_t widths[] = { 1, 2, 3, 8, 16, 33, 64 };
    int64_t S = random_size(), extra = one_in(3) ? 1 + random_below(2) : 0;
    struct attention a =
        problem(dtype, 1 + random_below(2), H, G, L, S, S + extra,
                widths[random_below(7)], widths[random_below(7)]);

    ask_for_everything(&a, one_in(2));
    add_random_masks(&a);
    if (one_in(4))
        a.softcap = 0.5 + (double)random_below(3);
    if (one_in(4))
        a.alibi_slopes = new_numbers(dtype, a.H);
    if (one_in(4))
        a.sinks = new_numbers(dtype, a.H);
    if (one_in(4)) {
        a.dropout_p = 0.3;
        a.seed = random_bits();
    }
    if (one_in(6))
        a.scale = -0.7;
    return a;
}

static struct attention random_problem(enum dtype dtype)
{
    int64_t G = 1 + random_below(2);

    return mixed_problem(dtype, G * (1 + random_below(3)), G, random_size());
}

static void mixes_of_everything(enum dtype dtype, int count, double near)
{
    for (int i = 0; i < count; i++) {
        random_state = (uint64_t)i;

        struct arena_mark mark = arena_mark(&memory);
        struct attention a = random_problem(dtype);

        run(&a);
        expect_right(&a, near);
        arena_release(&memory, mark);
    }
}

static void floats_come_near_to_the_plain_loop_in_every_mix(void **state)
{
    (void)state;
    mixes_of_everything(DTYPE_F32, 300, NEAR_F32);
}

/* A few rows of several heads are one tile, or nearly are. */
static void groups_of_heads_come_near_to_the_plain_loop_in_every_mix(
    void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        random_state = 20000 + (uint64_t)i;

        int64_t G = 1 + random_below(3), group = 2 + random_below(11);
        struct attention a = mixed_problem(DTYPE_F32, G * group, G,
                                           1 + random_below(5));

        run(&a);
        expect_right(&a, NEAR_F32);
        if (i % 4 == 0) { /* in one part */
            a.mean_parts.rank = 0;
            run(&a);
            expect_right(&a, NEAR_F32);
        }
        arena_reset(&memory, MEMORY);
    }
}

/* Some heads of a tile, and not others, are where float32 ends. */
static void rows_in_double_share_a_tile_with_others(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        random_state = 21000 + (uint64_t)i;

        int64_t L = 1 + random_below(2);
        struct attention a = problem(DTYPE_F32, 2, 8, 2, L, 90, 90, 16, 16);

        ask_for_everything(&a, i % 2);
        a.scores.rank = a.lse.rank = 0;
        a.mask.hidden = new_mask(&a, DTYPE_BOOL, 15);
        a.mask.hides_when = 1;
        for (int64_t h = 0; h < 8; h++)
            for (int64_t d = 0; one_in(2) && d < 16; d++)
                set4(&a.q, 1, h, L - 1, d, 1e38 * random_number());
        run(&a);
        expect_right(&a, NEAR_F32);
        arena_reset(&memory, MEMORY);
    }
}

static void doubles_come_near_to_the_plain_loop_in_every_mix(void **state)
{
    (void)state;
    mixes_of_everything(DTYPE_F64, 100, NEAR_F64);
}

static void expect_long_row(const struct attention *a, int64_t h, int64_t i)
{
    double sum = 0, out = 0;

    for (int64_t j = 0; j < a->T; j++) {
        double e = exp(get4(&a->q, 0, h, i, 0) * get4(&a->k, 0, 0, j, 0));

        sum += e;
        out += e * get4(&a->v, 0, 0, j, 0);
    }
    expect("long", a, 0, h, i, 0, get4(&a->out, 0, h, i, 0), out / sum, 1e-6);
}

/* Rows so long that a tile holds fewer of them, or of their heads, down to one.
 */
static void long_rows_are_right(void **state)
{
    (void)state;
    for (int64_t S = 5000; S < 1000000; S *= 6)
        for (int64_t H = 1; H <= 8; H += 7) {
            random_state = (uint64_t)S;

            struct attention a = problem(DTYPE_F32, 1, H, 1,
                                         H > 1         ? 1
                                         : S < 100000  ? 20
                                                       : 2,
                                         S, S + 1, 1, 1);

            run(&a);
            for (int64_t h = 0; h < H; h++)
                expect_long_row(&a, h, a.L - 1);
            arena_reset(&memory, 0);
        }
}

static void wide_heads_are_right(void **state)
{
    (void)state;
    random_state = 3;

    struct attention a = problem(DTYPE_F32, 1, 2, 1, 3, 400, 401, 70, 1500);

    ask_for_everything(&a, false);
    run(&a);
    expect_right(&a, NEAR_F32);
}

/* More keys than are held packed, and heads too wide to be packed, under
 * ranges that begin and end anywhere. */
static void spans_of_keys_join_without_a_seam(void **state)
{
    static const struct {
        int64_t L, S, D, Dv;
    } sizes[] = {
        { 9, 1500, 1024, 512 }, { 3, 1100, 600, 700 }, { 5, 300, 2100, 40 },
        { 2, 9000, 64, 64 },    { 7, 700, 1100, 520 },
    };

    (void)state;
    for (int i = 0; i < 3 * (int)(sizeof sizes / sizeof *sizes); i++) {
        int64_t L = sizes[i / 3].L, S = sizes[i / 3].S;

        random_state = 70 + (uint64_t)i;

        struct attention a = problem(DTYPE_F32, 1, 2, 1, L, S, S + i % 2,
                                     sizes[i / 3].D, sizes[i / 3].Dv);

        ask_for_everything(&a, i % 2);
        if (i % 3 == 1) {
            a.mask.shift = S / 2 + random_below(S / 2);
            a.mask.left = random_below(S);
            a.mask.right = 0;
        } else if (i % 3 == 2) {
            a.mask.key_hidden = new_padding(&a);
        }
        run(&a);
        expect_right(&a, NEAR_F32);
        arena_reset(&memory, 0);
    }
}

/* ---- bits ---- */

static void *copy(const struct tensor *t)
{
    size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);
    void *data = arena_alloc(&memory, bytes);

    assert_non_null(data);
    return memcpy(data, t->data, bytes);
}

static void expect_same(const char *what, const struct tensor *t,
                        const void *before)
{
    size_t size = dtype_size(t->dtype);

    for (int64_t i = 0; i < tensor_count(t); i++)
        if (memcmp((char *)t->data + (size_t)i * size,
                   (const char *)before + (size_t)i * size, size) != 0)
            fail_msg("%s, element %ld: %.9g was %.9g", what, (long)i,
                     get(t->data, t->dtype, i), get(before, t->dtype, i));
}

struct bits {
    void *out, *weights, *scores, *lse;
};

static struct bits bits_of(const struct attention *a)
{
    return (struct bits){ copy(&a->out), copy(&a->weights), copy(&a->scores),
                          copy(&a->lse) };
}

static void expect_bits(const char *why, const struct attention *a,
                        const struct bits *want)
{
    expect_same(why, &a->out, want->out);
    expect_same(why, &a->weights, want->weights);
    expect_same(why, &a->scores, want->scores);
    expect_same(why, &a->lse, want->lse);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        static const struct {
            int64_t H, G, L, S;
        } sizes[] = {
            { 4, 2, 300, 310 }, { 4, 2, 9, 3000 }, { 12, 3, 2, 3000 },
            { 16, 1, 1, 9000 },
        };
        bool average = round % 2;
        int64_t S = sizes[round / 2].S;

        random_state = 5;

        struct attention a = problem(DTYPE_F32, 2, sizes[round / 2].H,
                                     sizes[round / 2].G, sizes[round / 2].L, S,
                                     S + 1, 64, 64);

        ask_for_everything(&a, average);
        a.mask.right = 0;
        a.mask.bias = new_mask(&a, DTYPE_F32, 12);
        a.dropout_p = 0.1;
        run_on(&a, kernels_at(top), 1);

        struct bits one = bits_of(&a);
        int64_t dead = *a.fully_masked_queries;

        for (int threads = 2; threads <= MOST_THREADS; threads *= 2) {
            memset(a.out.data, 0x55, (size_t)tensor_count(&a.out) * 4);
            run_on(&a, kernels_at(top), threads);
            expect_bits("threads", &a, &one);
            assert_int_equal(*a.fully_masked_queries, dead);
        }
    }
}

static int64_t pieces_given; /* of the first call */

static bool count_pieces(struct parallel *self, int64_t pieces,
                         parallel_piece *piece, void *arg)
{
    (void)self;
    (void)piece;
    (void)arg;
    pieces_given = pieces_given == 0 ? pieces : pieces_given;
    return true;
}

static int64_t pieces_of(int64_t N, int64_t H, int64_t G, int64_t L, int64_t S,
                         bool average)
{
    struct parallel counting = { count_pieces };
    struct attention a = problem(DTYPE_F32, N, H, G, L, S, S, 64, 64);

    if (average)
        ask_for_everything(&a, true);
    pieces_given = 0;
    assert_true(attention_run(&a, kernels_at(top), &counting));
    arena_reset(&memory, MEMORY);
    return pieces_given;
}

/* 6e10 scores: a worker that ends no piece of them in a minute would be taken
 * for stuck. */
static void no_piece_is_most_of_a_minute(void **state)
{
    enum { L = 250000, MOST_SCORES = 300000000 };
    struct parallel counting = { count_pieces };
    struct attention a = problem(DTYPE_F64, 1, 1, 1, L, L, L, 1, 1);

    (void)state;
    pieces_given = 0;
    assert_true(attention_run(&a, kernels_at(top), &counting));
    assert_true(pieces_given >= (int64_t)L * L / MOST_SCORES);
}

static void what_is_small_is_one_piece_and_what_is_large_is_many(void **state)
{
    static const struct {
        int64_t N, H, G, L, S;
        bool average;
        int64_t least, most;
    } cases[] = {
        { 1, 12, 12, 16, 16, false, 1, 1 },
        { 1, 12, 12, 64, 64, true, 1, 1 },
        { 1, 12, 12, 512, 512, false, 8, 48 },
        { 1, 12, 12, 512, 512, true, 8, 48 },
        { 1, 12, 12, 64, 2048, true, 6, 48 },
        { 1, 32, 32, 1, 4096, true, 4, 48 },
        { 1, 32, 32, 1, 4096, false, 4, 48 },
        { 8, 12, 12, 128, 128, true, 8, 48 },
        { 1, 1, 1, 2048, 2048, false, 8, 48 },
        { 1, 32, 8, 1, 8192, true, 8, 8 }, /* a group is read once */
        { 1, 32, 8, 1, 8192, false, 8, 8 },
        { 1, 28, 4, 1, 8192, false, 4, 4 },
        { 1, 32, 1, 1, 8192, true, 4, 4 }, /* or as few heads are a tile */
        { 1, 32, 1, 1, 8192, false, 4, 4 },
        { 1, 32, 8, 512, 512, true, 8, 48 },
        { 1, 32, 1, 512, 512, false, 8, 48 },
        { 16, 32, 8, 64, 512, false, 24, 128 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t pieces = pieces_of(cases[i].N, cases[i].H, cases[i].G,
                                   cases[i].L, cases[i].S, cases[i].average);

        if (pieces < cases[i].least || pieces > cases[i].most)
            fail_msg("case %zu is %ld pieces", i, (long)pieces);
    }
}

static void asking_for_more_changes_no_bit_of_the_output(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        random_state = 100 + (uint64_t)i;

        struct attention a = random_problem(i % 4 ? DTYPE_F32 : DTYPE_F64);
        void *whole;

        run(&a);
        whole = copy(&a.out);
        ask_for_nothing(&a);
        run(&a);
        expect_same("alone", &a.out, whole);
        ask_for_everything(&a, i % 2);
        a.scores.rank = 0;
        run(&a);
        expect_same("without scores", &a.out, whole);
        arena_reset(&memory, MEMORY);
    }
}

static const double junk[] = { 1e38, INFINITY, -INFINITY, NAN, -3.4e38 };

/* Puts junk wherever no query of the kv head may look. */
static void spoil_hidden_keys(struct attention *a, double value)
{
    for (int64_t n = 0; n < a->N; n++)
        for (int64_t g = 0; g < a->G; g++)
            for (int64_t j = 0; j < a->S; j++) {
                int64_t per = a->H / a->G;
                bool seen = false;

                for (int64_t h = g * per; h < (g + 1) * per; h++)
                    for (int64_t i = 0; i < a->L; i++)
                        seen |= mask_value(a, n, h, i, j) > -(double)INFINITY;
                if (seen)
                    continue;
                for (int64_t d = 0; d < a->D; d++)
                    set4(&a->k, n, g, j, d, value);
                for (int64_t d = 0; d < a->Dv; d++)
                    set4(&a->v, n, g, j, d, value);
            }
}

static void junk_behind_a_mask_changes_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 150; i++) {
        random_state = 1000 + (uint64_t)i;

        struct attention a = random_problem(i % 5 ? DTYPE_F32 : DTYPE_F64);

        a.mask.key_hidden = new_padding(&a);
        run(&a);

        struct bits clean = bits_of(&a);

        for (size_t v = 0; v < sizeof junk / sizeof *junk; v++) {
            spoil_hidden_keys(&a, junk[v]);
            run(&a);
            expect_bits("junk", &a, &clean);
        }
        arena_reset(&memory, MEMORY);
    }
}

/* What one row may see is another's future: rows before it keep their bits. */
static void the_future_changes_no_bit_of_the_past(void **state)
{
    (void)state;
    random_state = 8;

    struct attention a = square(1, 2, 150, 16);

    ask_for_everything(&a, false);
    a.mask.right = 0;
    a.mask.bias = new_mask(&a, DTYPE_F32, 8);
    run(&a);

    struct bits clean = bits_of(&a);

    for (size_t v = 0; v < sizeof junk / sizeof *junk; v++) {
        for (int64_t j = 100; j < 150; j++)
            for (int64_t h = 0; h < 2; h++)
                for (int64_t d = 0; d < 16; d++) {
                    set4(&a.k, 0, h, j, d, junk[v]);
                    set4(&a.v, 0, h, j, d, junk[v]);
                }
        run(&a);
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < 100; i++)
                for (int64_t d = 0; d < 16; d++) {
                    double was = get(clean.out, DTYPE_F32,
                                     at4(&a.out, 0, h, i, d));

                    assert_true(get4(&a.out, 0, h, i, d) == was);
                }
    }
}

static void a_value_that_is_seen_and_not_finite_is_not_hushed_up(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        random_state = 9;

        struct attention a =
            problem(dtype ? DTYPE_F32 : DTYPE_F64, 1, 1, 1, 70, 70, 70, 8, 8);

        a.mask.right = 0;
        set4(&a.v, 0, 0, 30, 3, INFINITY);
        run(&a);
        for (int64_t i = 0; i < 70; i++)
            for (int64_t d = 0; d < 8; d++)
                assert_int_equal(isfinite(get4(&a.out, 0, 0, i, d)) != 0,
                                 i < 30 || d != 3);
    }
}

/* Copies the first S of `from`'s keys, and its appended ones. */
static struct attention without_last_keys(const struct attention *from,
                                          int64_t S)
{
    struct attention a = *from;
    int64_t extra = from->T - from->S;

    a.S = a.mask.S = S;
    a.T = S + extra;
    a.k = new_tensor(a.dtype, a.N, a.G, a.T, a.D, 1);
    a.v = new_tensor(a.dtype, a.N, a.G, a.T, a.Dv, 2);
    a.out = new_tensor(a.dtype, a.N, a.H, a.L, a.Dv, 0);
    for (int64_t n = 0; n < a.N; n++)
        for (int64_t g = 0; g < a.G; g++)
            for (int64_t j = 0; j < a.T; j++) {
                int64_t was = j < S ? j : from->S + j - S;

                for (int64_t d = 0; d < a.D; d++)
                    set4(&a.k, n, g, j, d, get4(&from->k, n, g, was, d));
                for (int64_t d = 0; d < a.Dv; d++)
                    set4(&a.v, n, g, j, d, get4(&from->v, n, g, was, d));
            }
    return a;
}

static void padding_at_the_end_is_as_good_as_no_keys_there(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        random_state = 2000 + (uint64_t)i;

        int64_t S = 1 + random_below(140), more = 1 + random_below(300);
        int64_t extra = random_below(3);
        struct attention a = problem(DTYPE_F32, 2, 2, 1, 1 + random_below(140),
                                     S + more, S + more + extra, 16, 8);
        struct attention shorter;
        uint8_t *hidden = arena_alloc(&memory, (size_t)(2 * a.S));

        if (one_in(2))
            a.mask.right = random_below(20);
        shorter = without_last_keys(&a, S);
        for (int64_t j = 0; j < 2 * a.S; j++)
            hidden[j] = j % a.S >= S;
        a.mask.key_hidden = hidden;
        a.out = new_tensor(DTYPE_F32, 2, 2, a.L, 8, 0);
        run(&a);
        run(&shorter);
        expect_same("padded", &a.out, shorter.out.data);
        arena_reset(&memory, MEMORY);
    }
}

static void a_head_is_the_same_alone_and_in_company(void **state)
{
    (void)state;
    random_state = 11;

    struct attention all = square(3, 4, 130, 32);

    run(&all);
    for (int64_t n = 0; n < 3; n++)
        for (int64_t h = 0; h < 4; h++) {
            struct attention one = all;

            one.N = one.H = one.G = 1;
            one.q.data = (float *)all.q.data + at4(&all.q, n, h, 0, 0);
            one.k.data = (float *)all.k.data + at4(&all.k, n, h, 0, 0);
            one.v.data = (float *)all.v.data + at4(&all.v, n, h, 0, 0);
            one.out = new_tensor(DTYPE_F32, 1, 1, 130, 32, 0);
            run(&one);
            for (int64_t i = 0; i < 130; i++)
                for (int64_t d = 0; d < 32; d++)
                    assert_true(get4(&one.out, 0, 0, i, d) ==
                                get4(&all.out, n, h, i, d));
        }
}

static void heads_of_groups_are_heads_repeated(int64_t L)
{
    random_state = 12;

    struct attention a = problem(DTYPE_F32, 2, 6, 2, L, 90, 90, 24, 16);
    struct attention repeated = a;
    void *want;

    repeated.G = 6;
    repeated.k = new_tensor(DTYPE_F32, 2, 6, 90, 24, 0);
    repeated.v = new_tensor(DTYPE_F32, 2, 6, 90, 16, 0);
    for (int64_t n = 0; n < 2; n++)
        for (int64_t h = 0; h < 6; h++)
            for (int64_t j = 0; j < 90; j++) {
                for (int64_t d = 0; d < 24; d++)
                    set4(&repeated.k, n, h, j, d, get4(&a.k, n, h / 3, j, d));
                for (int64_t d = 0; d < 16; d++)
                    set4(&repeated.v, n, h, j, d, get4(&a.v, n, h / 3, j, d));
            }
    run(&a);
    want = copy(&a.out);
    run(&repeated);
    expect_same("repeated", &repeated.out, want);
}

/* Also where a tile is a row of each of them. */
static void grouped_heads_are_heads_repeated(void **state)
{
    static const int64_t lengths[] = { 1, 2, 3, 8, 70 };

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        heads_of_groups_are_heads_repeated(lengths[i]);
        arena_reset(&memory, MEMORY);
    }
}

static void a_boolean_mask_is_an_additive_one_of_minus_infinity(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        random_state = 3000 + (uint64_t)i;

        struct attention a = random_problem(DTYPE_F32);

        a.mask.bias.rank = 0;
        a.mask.key_bias = NULL;
        a.mask.hides_when = 1;
        a.mask.hidden = new_mask(&a, DTYPE_BOOL, 15);
        run(&a);

        struct bits want = bits_of(&a);
        const uint8_t *hidden = a.mask.hidden.data;

        a.mask.bias = a.mask.hidden;
        a.mask.bias.dtype = DTYPE_F32;
        a.mask.bias.data = new_numbers(DTYPE_F32, a.N * a.H * a.L * a.S);
        a.mask.hidden.rank = 0;
        for (int64_t j = 0; j < a.N * a.H * a.L * a.S; j++)
            ((float *)a.mask.bias.data)[j] = hidden[j] ? -INFINITY : 0;
        run(&a);
        expect_bits("additive", &a, &want);
        arena_reset(&memory, MEMORY);
    }
}

static void a_window_wider_than_everything_is_none(void **state)
{
    (void)state;
    random_state = 13;

    struct attention a = problem(DTYPE_F32, 1, 2, 2, 100, 140, 140, 16, 16);

    ask_for_everything(&a, true);
    run(&a);

    struct bits want = bits_of(&a);

    a.mask.left = a.mask.right = 140;
    run(&a);
    expect_bits("window", &a, &want);
    a.mask.left = INT64_MAX - 1;
    a.mask.shift = -40;
    a.mask.right = INT64_MAX - 1;
    run(&a);
    expect_bits("huge window", &a, &want);
}

static void values_of_the_identity_return_the_weights(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        random_state = 4000 + (uint64_t)i;

        struct attention a = problem(DTYPE_F32, 1, 2, 1, 90, 80, 80, 16, 80);

        add_random_masks(&a);
        ask_for_everything(&a, false);
        for (int64_t j = 0; j < 80; j++)
            for (int64_t d = 0; d < 80; d++)
                set4(&a.v, 0, 0, j, d, j == d);
        run(&a);
        for (int64_t h = 0; h < 2; h++)
            for (int64_t l = 0; l < 90; l++)
                for (int64_t j = 0; j < 80; j++)
                    assert_true(get4(&a.out, 0, h, l, j) ==
                                get4(&a.weights, 0, h, l, j));
        arena_reset(&memory, MEMORY);
    }
}

/* ---- where float32 ends ---- */

static void products_that_overflow_are_right_after_scaling(void **state)
{
    (void)state;
    random_state = 14;

    struct attention a = square(1, 2, 70, 16);

    ask_for_everything(&a, false);
    for (int64_t i = 0; i < tensor_count(&a.q); i++) {
        ((float *)a.q.data)[i] *= 1e19f;
        ((float *)a.k.data)[i] *= 1e20f;
    }
    a.scale = 1e-39;
    run(&a);
    expect_right(&a, NEAR_F32);
    a.scale = 1e-15; /* a float's reach, but the product before it is not */
    for (int64_t i = 0; i < tensor_count(&a.k); i++)
        ((float *)a.k.data)[i] *= 1e-24f;
    a.mask.right = 3;
    run(&a);
    expect_right(&a, NEAR_F32);
}

static void multiply_all(const struct tensor *t, double factor)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        set(t->data, t->dtype, i, get(t->data, t->dtype, i) * factor);
}

/* Of doubles as well: beyond what scale brings back, and what scale times
 * either factor would carry beyond it. */
static void products_that_overflow_double_are_right_after_scaling(void **state)
{
    static const struct {
        double q, k, scale;
    } sizes[] = { { 1e160, 1e155, 1e-315 },
                  { 1e20, 1e300, 1e-320 },
                  { 1e-155, 1e-156, 1e308 },
                  { 1e30, 1e-320, 1e289 } };

    (void)state;
    if (isinf((double)(strtold("2e308", NULL) / 2)))
        skip(); /* valgrind has doubles alone, and the loop needs more */
    random_state = 17;
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
        for (int64_t L = 1; L <= 70; L += 69) {
            struct attention a =
                problem(DTYPE_F64, 1, 2, 1, L, 40, 42, 16, 8);

            ask_for_everything(&a, false);
            multiply_all(&a.q, sizes[c].q);
            multiply_all(&a.k, sizes[c].k);
            a.scale = sizes[c].scale;
            a.mask.right = 3;
            run(&a);
            expect_right(&a, NEAR_F64);
            arena_reset(&memory, MEMORY);
        }
}

static void tiny_products_are_right_after_scaling(void **state)
{
    (void)state;
    random_state = 15;

    struct attention a = square(1, 1, 40, 16);

    ask_for_everything(&a, true);
    for (int64_t i = 0; i < tensor_count(&a.q); i++) {
        ((float *)a.q.data)[i] *= 1e-25f;
        ((float *)a.k.data)[i] *= 1e-25f;
    }
    a.scale = 1e50;
    run(&a);
    expect_right(&a, NEAR_F32);
    a.scale = 0;
    run(&a);
    expect_right(&a, NEAR_F32);
}

/* Scores beyond float32: `scores` cannot hold them, the rest can. */
static void scores_beyond_float32_give_right_weights(void **state)
{
    (void)state;
    random_state = 16;

    struct attention a = square(1, 1, 66, 4);

    ask_for_everything(&a, false);
    for (int64_t i = 0; i < tensor_count(&a.q); i++) {
        ((float *)a.q.data)[i] *= 1e25f;
        ((float *)a.k.data)[i] *= 1e25f;
    }
    a.scores.rank = a.lse.rank = 0;
    run(&a);
    expect_right(&a, NEAR_F32);
}

static void a_large_bias_does_not_swallow_the_scores(void **state)
{
    static const float sizes[] = { -10000, 16, 1e6f, -1e9f, 1e12f, -3.4e38f,
                                   1e30f };

    (void)state;
    for (int s = 0; s < 14; s++) { /* on every key, then on a third */
        random_state = 17;

        struct attention a = square(2, 2, 70, 16);
        float *bias = new_numbers(DTYPE_F32, a.N * a.S);

        ask_for_everything(&a, false);
        for (int64_t j = 0; j < a.N * a.S; j++)
            bias[j] = s < 7 || j % 3 == 0 ? sizes[s % 7] : 0;
        a.mask.key_bias = bias;
        run(&a);
        expect_right(&a, 1e-6);
        for (int64_t i = 0; i < tensor_count(&a.out); i++)
            assert_true(isfinite(((float *)a.out.data)[i]));
    }
}

/* Rows of a tile whose masks are large on every key, or on some, or on none,
 * in any order, with everything asked for. */
static void large_masks_and_others_share_a_tile(void **state)
{
    static const float sizes[] = { 0, -10000, 30, -1e9f, -3.4e38f, 1e15f };

    (void)state;
    for (int round = 0; round < 40; round++) {
        random_state = 300 + (uint64_t)round;

        struct attention a = square(1, 2, 60 + random_below(140), 16);
        float *bias = new_numbers(DTYPE_F32, a.L * a.S);

        ask_for_everything(&a, round % 2);
        for (int64_t i = 0; i < a.L; i++) {
            float size = sizes[random_below(one_in(2) ? 6 : 1)];

            for (int64_t j = 0; j < a.S; j++)
                bias[i * a.S + j] += one_in(9) ? -INFINITY
                                     : one_in(9) ? size * 2 : size;
        }
        a.mask.bias = tensor_packed(bias, DTYPE_F32, 4,
                                    (int64_t[]){ 1, 1, a.L, a.S });
        a.mask.bias.step[1] = 0;
        a.mask.right = round % 3 ? INT64_MAX : 0;
        a.softcap = round % 4 ? 0 : 20;
        if (round % 5 < 2) {
            float *sinks = new_numbers(DTYPE_F32, a.H);

            sinks[0] *= round % 5 == 0 ? 1e20f : 1;
            a.sinks = sinks;
        }
        run(&a);
        expect_right(&a, NEAR_F32);
        arena_reset(&memory, MEMORY);
    }
}

static void huge_finite_masks_are_biases(void **state)
{
    static const float sizes[] = { 1e30f, -1e30f, 3.4e38f, -3.4e38f, FLT_MAX,
                                   -FLT_MAX };

    (void)state;
    for (int i = 0; i < 60; i++) {
        random_state = 5000 + (uint64_t)i;

        struct attention a = random_problem(DTYPE_F32);
        float *bias;

        a.mask.bias = new_mask(&a, DTYPE_F32, 12);
        bias = a.mask.bias.data;
        for (int64_t j = 0; j < a.L * a.S; j++)
            if (one_in(i % 3 + 1))
                bias[j] = sizes[random_below(6)];
        a.scores.rank = 0; /* a score may round to infinity here */
        run(&a);
        expect_right(&a, NEAR_F32);
        arena_reset(&memory, MEMORY);
    }
}

/* Of each row of the mask another part stays, of one key at least. */
static void swallow_ends(const struct attention *a, float size)
{
    const struct tensor *t = &a->mask.bias;
    int64_t rows = t->step[2] == 0 ? 1 : a->L;
    bool shared = one_in(3);
    int64_t from = random_below(a->S), to = from + 1 + random_below(a->S - from);

    for (int64_t i = 0; i < rows; i++) {
        if (!shared) {
            from = random_below(a->S);
            to = from + 1 + random_below(a->S - from);
        }
        for (int64_t j = 0; j < a->S; j++)
            ((float *)t->data)[i * a->S + j] =
                j >= from && j < to && (j == from || !one_in(9)) ? 0 : size;
    }
}

static struct attention swallowed_problem(float size)
{
    int64_t S = 1 + random_below(one_in(3) ? 700 : 150);
    struct attention a = problem(DTYPE_F32, 1, 2, 1, 1 + random_below(150), S,
                                 S + (one_in(4) ? 1 : 0), 16, 16);

    ask_for_everything(&a, one_in(2));
    a.mask.right = one_in(4) ? S / 2 : INT64_MAX;
    a.softcap = one_in(4) ? 20 : 0;
    a.mask.bias = new_mask(&a, DTYPE_F32, one_in(2) ? 8 : 12);
    swallow_ends(&a, size);
    return a;
}

/* Such keys are not multiplied, and nobody may tell. */
static void what_a_huge_mask_swallows_is_as_good_as_hidden(void **state)
{
    static const float sizes[] = { -FLT_MAX, -1e30f, -0x1p91f, -0x1p100f };

    (void)state;
    for (int i = 0; i < 60; i++) {
        random_state = 7000 + (uint64_t)i;

        struct attention a = swallowed_problem(sizes[i % 4]);
        float *bias = a.mask.bias.data;
        int64_t count = a.S * (a.mask.bias.step[2] == 0 ? 1 : a.L);
        struct bits want;

        run(&a);
        want = bits_of(&a);
        for (int64_t n = 0; n < a.N * a.H * a.L * a.T; n++)
            if (fabsf(((float *)want.scores)[n]) > 1e20f)
                ((float *)want.scores)[n] = -INFINITY;
        for (int64_t j = 0; j < count; j++)
            bias[j] = bias[j] == 0 ? 0 : -INFINITY;
        run(&a);
        if (*a.fully_masked_queries == 0) /* else they differ */
            expect_bits("hidden", &a, &want);
        arena_reset(&memory, MEMORY);
    }
}

/* Where scores are as huge, a mask swallows nothing. */
static void scores_as_large_as_a_huge_mask_stand_against_it(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        random_state = 7500 + (uint64_t)i;

        struct attention a = swallowed_problem(-0x1p91f);

        a.softcap = 0;
        a.scores.rank = a.lse.rank = 0;
        multiply_all(&a.q, 1e14);
        multiply_all(&a.k, 1e14);
        run(&a);
        expect_right(&a, NEAR_F32);
        arena_reset(&memory, MEMORY);
    }
}

static void finite_masks_whose_sum_overflows_forbid(void **state)
{
    (void)state;
    random_state = 18;

    struct attention a = square(1, 1, 70, 8);
    float *key = new_numbers(DTYPE_F32, a.S), *bias;

    ask_for_everything(&a, false);
    a.mask.bias = new_mask(&a, DTYPE_F32, 12);
    bias = a.mask.bias.data;
    for (int64_t j = 0; j < a.S; j++) {
        key[j] = j % 2 ? 0 : -FLT_MAX;
        for (int64_t i = 0; i < a.L; i++)
            bias[i * a.S + j] = i % 3 ? -FLT_MAX : 0;
    }
    a.mask.key_bias = key;
    run(&a);
    expect_right(&a, NEAR_F32);
    assert_true(get4(&a.weights, 0, 0, 1, 0) == 0);
    assert_true(get4(&a.scores, 0, 0, 1, 0) == -(double)INFINITY);
    assert_true(get4(&a.weights, 0, 0, 1, 1) > 0);
}

static void values_near_the_largest_float_do_not_overflow_their_mean(
    void **state)
{
    (void)state;
    random_state = 19;

    struct attention a = square(1, 1, 70, 8);

    for (int64_t i = 0; i < tensor_count(&a.v); i++)
        ((float *)a.v.data)[i] = FLT_MAX;
    run(&a);
    for (int64_t i = 0; i < tensor_count(&a.out); i++)
        expect("mean", &a, 0, 0, 0, i, (double)((float *)a.out.data)[i],
               (double)FLT_MAX, 1e-6);
}

static void large_sinks_take_everything_and_small_ones_nothing(void **state)
{
    static const float sinks[] = { 1e4f, -1e4f, 3e38f, -3e38f, 100, 0 };

    (void)state;
    random_state = 20;

    struct attention a = square(1, 6, 20, 8);

    ask_for_everything(&a, false);
    a.sinks = sinks;
    run(&a);
    expect_right(&a, NEAR_F32);
}

/* A query that no key is left for, with and without appended keys. */
static void dead_rows_are_zero_and_counted(void **state)
{
    (void)state;
    for (int64_t extra = 0; extra < 2; extra++) {
        random_state = 21;

        struct attention a =
            problem(DTYPE_F32, 2, 3, 3, 70, 9, 9 + extra, 8, 8);
        uint8_t *hidden = arena_alloc(&memory, 18);
        float *sinks = new_numbers(DTYPE_F32, 3);

        memset(hidden, 1, 9);
        memset(hidden + 9, 0, 9);
        a.mask.key_hidden = hidden;
        a.sinks = sinks;
        ask_for_everything(&a, false);
        run(&a);
        expect_right(&a, NEAR_F32);
        assert_int_equal(*a.fully_masked_queries, extra ? 0 : 3 * 70);
        if (extra == 0)
            assert_true(get(a.lse.data, DTYPE_F32, 70) == (double)sinks[1]);
        a.scale = 0; /* in double */
        run(&a);
        expect_right(&a, NEAR_F32);
    }
}

static void what_runs_out_of_scratch_says_so(void **state)
{
    (void)state;
    random_state = 22;

    struct attention a = square(1, 1, 70, 64);
    struct parallel_serial serial;
    bool done = false;

    a.mask.right = 0;
    set4(&a.v, 0, 0, 69, 0, INFINITY);
    set4(&a.k, 0, 0, 69, 0, INFINITY);
    for (size_t bytes = 0; !done; bytes += 4096) {
        struct arena scratch;

        arena_init(&scratch, bytes);
        parallel_serial_init(&serial, &scratch);
        done = attention_run(&a, kernels_at(top), &serial.parallel);
        assert_true(done || bytes <= (size_t)attention_scratch_bytes(&a));
        assert_int_equal(done, !arena_failed(&scratch));
        arena_free(&scratch);
    }
}

static void time_is_told_by_step(void **state)
{
    int64_t step_ns[3] = { 0, 0, 0 };

    (void)state;
    random_state = 23;

    struct attention a = square(1, 4, 128, 64);

    a.step_ns = step_ns;
    run_on(&a, kernels_at(top), 2);
    assert_true(step_ns[0] > 0 && step_ns[1] > 0 && step_ns[2] > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(floats_come_near_to_the_plain_loop_in_every_mix),
        TEST(groups_of_heads_come_near_to_the_plain_loop_in_every_mix),
        TEST(rows_in_double_share_a_tile_with_others),
        TEST(doubles_come_near_to_the_plain_loop_in_every_mix),
        TEST(long_rows_are_right),
        TEST(wide_heads_are_right),
        TEST(spans_of_keys_join_without_a_seam),
        TEST(any_number_of_threads_gives_the_same_bits),
        TEST(what_is_small_is_one_piece_and_what_is_large_is_many),
        TEST(no_piece_is_most_of_a_minute),
        TEST(asking_for_more_changes_no_bit_of_the_output),
        TEST(junk_behind_a_mask_changes_no_bit),
        TEST(the_future_changes_no_bit_of_the_past),
        TEST(a_value_that_is_seen_and_not_finite_is_not_hushed_up),
        TEST(padding_at_the_end_is_as_good_as_no_keys_there),
        TEST(a_head_is_the_same_alone_and_in_company),
        TEST(grouped_heads_are_heads_repeated),
        TEST(a_boolean_mask_is_an_additive_one_of_minus_infinity),
        TEST(a_window_wider_than_everything_is_none),
        TEST(values_of_the_identity_return_the_weights),
        TEST(products_that_overflow_are_right_after_scaling),
        TEST(products_that_overflow_double_are_right_after_scaling),
        TEST(tiny_products_are_right_after_scaling),
        TEST(scores_beyond_float32_give_right_weights),
        TEST(a_large_bias_does_not_swallow_the_scores),
        TEST(large_masks_and_others_share_a_tile),
        TEST(huge_finite_masks_are_biases),
        TEST(what_a_huge_mask_swallows_is_as_good_as_hidden),
        TEST(scores_as_large_as_a_huge_mask_stand_against_it),
        TEST(finite_masks_whose_sum_overflows_forbid),
        TEST(values_near_the_largest_float_do_not_overflow_their_mean),
        TEST(large_sinks_take_everything_and_small_ones_nothing),
        TEST(dead_rows_are_zero_and_counted),
        TEST(what_runs_out_of_scratch_says_so),
        TEST(time_is_told_by_step),
    };

    static const char *const levels[] = { "portable", "avx2", "avx512" };
    const char *last = "";
    int failed = 0;

    kernels_single_threaded();
    for (int i = 0; i < 3; i++) {
        top = levels[i];
        if (strcmp(kernels_at(top)->name, last) == 0)
            continue; /* the processor has no more */
        last = kernels_at(top)->name;
        failed += cmocka_run_group_tests_name(top, tests, NULL, NULL);
    }
    return failed;
}
