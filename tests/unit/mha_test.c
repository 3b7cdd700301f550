#include "core/kernels/kernels.h"
#include "core/mha.h"
#include "tests/unit/mha_truth.h"
#include "tests/unit/request_draw.h"

#include <pthread.h>
#include <stdatomic.h>

static struct kernels kernels;

/* |error| <= tolerance * (1 + |want|): inputs are within 1, sums of at most a
 * few dozen products; float32 has 6e-8 a rounding. */
static const double TOLERANCE_F32 = 2e-5, TOLERANCE_F64 = 1e-12;

static void expect_number(const char *name, int64_t at, double got,
                          double want, enum dtype dtype)
{
    double tolerance = dtype == DTYPE_F64 ? TOLERANCE_F64 : TOLERANCE_F32;

    if (got == want || fabs(got - want) <= tolerance * (1 + fabs(want)))
        return;
    fail_msg("%s\n%s[%lld]: got %.9g want %.9g", request_text, name,
             (long long)at, got, want);
}

static void expect_numbers(const char *name, const struct tensor *got,
                           const double *want, int64_t count)
{
    assert_int_equal(tensor_count(got), count);
    assert_true(tensor_is_packed(got));
    for (int64_t i = 0; i < count; i++)
        expect_number(name, i, number_at(got, i), want[i], got->dtype);
}

static void expect_rows(const struct truth *t, const char *name,
                        const struct tensor *got, const double *want,
                        int64_t width)
{
    assert_int_equal(tensor_count(got), t->N * t->L * width);
    assert_true(tensor_is_packed(got));
    for (int64_t n = 0; n < t->N; n++)
        for (int64_t i = 0; i < t->L; i++)
            for (int64_t c = 0; c < width; c++) {
                int64_t at = place_of(t, n, i, c, width);

                expect_number(name, at, number_at(got, at),
                              want[(n * t->L + i) * width + c], got->dtype);
            }
}

static void expect_rank(const struct truth *t, const struct tensor *got,
                        int batched)
{
    assert_int_equal(got->rank, batched - (t->layout == LAYOUT_LE));
}

static void expect_top_k(const struct truth *t, const struct mha_response *got,
                         const double *want)
{
    int64_t k = t->r->weights_top_k;
    int64_t rows = tensor_count(&got->top_kept);
    const int64_t *index = got->top_indices.data;

    assert_int_equal(got->weights.rank, 0);
    assert_int_equal(tensor_count(&got->top_indices), rows * k);
    assert_int_equal(got->top_indices.rank, got->top_kept.rank + 1);
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;

        for (int64_t j = i * k; j < (i + 1) * k; j++) {
            double value = number_at(&got->top_values, j);

            expect_number("values", j, value, want[i * t->T + index[j]],
                          got->top_values.dtype);
            if (j > i * k)
                assert_true(value <= number_at(&got->top_values, j - 1));
            sum += value;
        }
        expect_number("kept", i, number_at(&got->top_kept, i), sum,
                      got->top_kept.dtype);
    }
}

static void expect_weights(const struct truth *t,
                           const struct mha_response *got)
{
    bool mean = t->r->average_attn_weights;
    const double *want = mean ? t->mean : t->weights;

    if (!t->r->need_weights) {
        assert_int_equal(got->weights.rank, 0);
        assert_int_equal(got->top_indices.rank, 0);
    } else if (t->r->weights_top_k != 0) {
        expect_top_k(t, got, want);
    } else {
        expect_rank(t, &got->weights, mean ? 3 : 4);
        expect_numbers("weights", &got->weights, want,
                       t->N * (mean ? 1 : t->H) * t->L * t->T);
    }
}

static void expect_comparison(const struct comparison *c,
                              const struct named_tensor *sent,
                              const struct tensor *got)
{
    double worst = -1;

    assert_int_equal(c->present, sent->value.rank != 0);
    if (!c->present)
        return;
    for (int64_t i = 0; got->rank != 0 && i < tensor_count(got); i++)
        worst = fmax(worst,
                     fabs(number_at(got, i) - number_at(&sent->value, i)));
    if (worst >= 0)
        assert_true(c->max_abs == worst);
    assert_true(fabs(c->got - c->expected) == c->max_abs);
}

static void expect_response(const struct truth *t,
                            const struct mha_response *got)
{
    const struct {
        unsigned flag;
        const char *name;
        const struct tensor *got;
        const double *want;
        int64_t heads, rows, width;
    } returns[] = {
        { MHA_RETURN_Q, "q", &got->q, t->q, t->H, t->L, t->D },
        { MHA_RETURN_K, "k", &got->k, t->k, t->G, t->T, t->D },
        { MHA_RETURN_V, "v", &got->v, t->v, t->G, t->T, t->Dv },
        { MHA_RETURN_SCORES, "scores", &got->scores, t->scores, t->H, t->L,
          t->T },
        { MHA_RETURN_LSE, "lse", &got->lse, t->lse, t->H, t->L, 0 },
    };

    for (size_t i = 0; i < sizeof returns / sizeof *returns; i++) {
        int64_t width = returns[i].width != 0 ? returns[i].width : 1;

        if ((t->r->returns & returns[i].flag) == 0) {
            assert_int_equal(returns[i].got->rank, 0);
            continue;
        }
        expect_rank(t, returns[i].got, returns[i].width != 0 ? 4 : 3);
        expect_numbers(returns[i].name, returns[i].got, returns[i].want,
                       t->N * returns[i].heads * returns[i].rows * width);
    }
    if (t->r->returns & MHA_RETURN_CONTEXT) {
        assert_int_equal(got->context.rank, got->output.rank);
        expect_rows(t, "context", &got->context, t->context, t->H * t->Dv);
    }
    expect_rows(t, "output", &got->output, t->output, t->out_width);
    expect_weights(t, got);
    assert_int_equal(got->fully_masked_queries, t->fully_masked);
    expect_comparison(&got->compare_output, &t->r->compare_output,
                      &got->output);
    expect_comparison(&got->compare_weights, &t->r->compare_weights,
                      &got->weights);
}

/* Threads that come for the pieces, as a server's workers do. */
enum { THREADS_MAX = 8 };

struct threads {
    struct parallel parallel;
    int count;
    struct arena scratch[THREADS_MAX];
    /* what runs now */
    atomic_int_fast64_t next;
    int64_t pieces;
    parallel_piece *piece;
    void *arg;
    atomic_bool failed;
};

struct thread {
    struct threads *all;
    int number;
};

static void *thread_run(void *arg)
{
    struct thread *thread = arg;
    struct threads *all = thread->all;
    struct arena *scratch = &all->scratch[thread->number];
    int64_t piece;

    while ((piece = atomic_fetch_add(&all->next, 1)) < all->pieces) {
        struct arena_mark mark = arena_mark(scratch);

        if (!all->piece(all->arg, piece, scratch))
            atomic_store(&all->failed, true);
        arena_release(scratch, mark);
    }
    return NULL;
}

static bool run_on_threads(struct parallel *parallel, int64_t pieces,
                           parallel_piece *piece, void *arg)
{
    struct threads *all = (struct threads *)(void *)parallel;
    struct thread thread[THREADS_MAX];
    pthread_t id[THREADS_MAX];

    atomic_store(&all->next, 0);
    all->pieces = pieces;
    all->piece = piece;
    all->arg = arg;
    for (int i = 0; i < all->count; i++) {
        thread[i] = (struct thread){ all, i };
        assert_int_equal(pthread_create(&id[i], NULL, thread_run, &thread[i]),
                         0);
    }
    for (int i = 0; i < all->count; i++)
        pthread_join(id[i], NULL);
    return !atomic_load(&all->failed);
}

static void threads_init(struct threads *all, int count, size_t cap_bytes)
{
    *all = (struct threads){ .parallel.run = run_on_threads, .count = count };
    for (int i = 0; i < count; i++)
        arena_init(&all->scratch[i], cap_bytes);
}

static void threads_free(struct threads *all)
{
    for (int i = 0; i < all->count; i++)
        arena_free(&all->scratch[i]);
}

struct outcome {
    struct mha_plan plan;
    struct mha_response response;
    struct error err;
    struct arena arena;
    bool ok;
};

static void plan_with(struct outcome *o, const struct mha_request *r,
                      size_t cap_bytes)
{
    *o = (struct outcome){ .ok = false };
    arena_init(&o->arena, cap_bytes);
    if (!mha_check(r, &o->plan, &o->err))
        fail_msg("%s\nrefused: %s", request_text, o->err.text);
}

static void run_with(struct outcome *o, const struct mha_request *r,
                     struct parallel *parallel, size_t cap_bytes)
{
    plan_with(o, r, cap_bytes);
    o->ok = mha_run(&o->plan, &kernels, parallel, &o->arena, &o->response,
                    &o->err);
}

/* Into request_text first, so that a failure can print it. */
static const struct mha_request *request_of(struct fixture *f,
                                            const char *text)
{
    if (text != request_text)
        snprintf(request_text, sizeof request_text, "%s", text);
    return request_read(f, request_text);
}

enum { PLENTY = 1 << 28 };

static void run(struct outcome *o, struct fixture *f, const char *text)
{
    struct arena scratch;
    struct parallel_serial serial;

    arena_init(&scratch, PLENTY);
    parallel_serial_init(&serial, &scratch);
    run_with(o, request_of(f, text), &serial.parallel, PLENTY);
    arena_free(&scratch);
}

static void run_and_expect_truth(struct fixture *f, const char *text)
{
    struct outcome o;
    struct truth t;

    run(&o, f, text);
    if (!o.ok)
        fail_msg("%s\n%s", request_text, o.err.text);
    truth_make(&t, &f->r);
    expect_response(&t, &o.response);
    if ((int64_t)o.arena.used_bytes > o.plan.arena_bytes)
        fail_msg("%s\ntook %zu bytes, planned %lld", request_text,
                 o.arena.used_bytes, (long long)o.plan.arena_bytes);
    truth_free(&t);
    arena_free(&o.arena);
}

static void any_request_is_what_naive_loops_in_double_say(void **state)
{
    for (unsigned i = 0; i < 3000; i++) {
        seed = i;
        draw_request();
        run_and_expect_truth(*state, request_text);
    }
}

static void sizes_past_a_block_of_the_projections_agree_too(void **state)
{
    run_and_expect_truth(
        *state, "query 2 140 6;num_heads 2;returns 7;state_dict.query.weight "
                "260 6;state_dict.key.weight 260 6;state_dict.value.weight 514 "
                "6;state_dict.value.bias 514;state_dict.out_proj.weight 257 "
                "514;state_dict.out_proj.bias 257");
    run_and_expect_truth(
        *state, "query 257 2 8;layout 2;num_heads 2;add_zero_attn 1;returns 7;"
                "state_dict.in_proj_weight 24 8;state_dict.bias_k 1 1 8;"
                "state_dict.bias_v 1 1 8");
    run_and_expect_truth(
        *state, "query 2 258 4;num_heads 2;add_zero_attn 1;returns 6;"
                "state_dict.in_proj_weight 12 4");
    run_and_expect_truth(
        *state, "precision 2;query 2 130 260;returns 39;scale 0.002;"
                "num_heads 4;state_dict.in_proj_weight 780 260;"
                "state_dict.bias_k 1 1 260;state_dict.bias_v 1 1 260;"
                "add_zero_attn 1");
    run_and_expect_truth(
        *state, "precision 2;query 258 2 261;key 7 2 33;value 7 2 5;layout 2;"
                "num_heads 2;add_zero_attn 1;returns 39;scale 0.002;"
                "state_dict.query.weight 130 261;state_dict.key.weight 130 33;"
                "state_dict.value.weight 66 5;state_dict.value.bias 66;"
                "state_dict.out_proj.weight 9 66");
}

static void expect_same_bytes(const char *name, const struct tensor *a,
                              const struct tensor *b)
{
    size_t bytes = (size_t)tensor_count(a) * dtype_size(a->dtype);

    assert_int_equal(a->rank, b->rank);
    if (bytes != 0 && memcmp(a->data, b->data, bytes) != 0)
        fail_msg("%s\n%s differs", request_text, name);
}

static void expect_same_response(const struct mha_response *a,
                                 const struct mha_response *b)
{
    expect_same_bytes("output", &a->output, &b->output);
    expect_same_bytes("weights", &a->weights, &b->weights);
    expect_same_bytes("indices", &a->top_indices, &b->top_indices);
    expect_same_bytes("values", &a->top_values, &b->top_values);
    expect_same_bytes("kept", &a->top_kept, &b->top_kept);
    expect_same_bytes("q", &a->q, &b->q);
    expect_same_bytes("k", &a->k, &b->k);
    expect_same_bytes("v", &a->v, &b->v);
    expect_same_bytes("scores", &a->scores, &b->scores);
    expect_same_bytes("context", &a->context, &b->context);
    expect_same_bytes("lse", &a->lse, &b->lse);
    assert_int_equal(a->fully_masked_queries, b->fully_masked_queries);
}

enum { RESULTS = 10 };

/* All but `context`, which the arena has in any case. */
static void list_results(struct mha_response *r, struct tensor *list[RESULTS])
{
    struct tensor *const all[RESULTS] = {
        &r->output, &r->weights, &r->top_indices, &r->top_values, &r->top_kept,
        &r->q, &r->k, &r->v, &r->scores, &r->lse,
    };

    memcpy(list, all, sizeof all);
}

static void run_in_given_memory(struct outcome *o, const struct mha_request *r,
                                struct parallel *parallel, struct arena *memory)
{
    struct tensor *result[RESULTS];
    void *given[RESULTS];

    plan_with(o, r, PLENTY);
    mha_shape(&o->plan, &o->response);
    list_results(&o->response, result);
    for (int i = 0; i < RESULTS; i++) {
        size_t size = dtype_size(result[i]->dtype);
        char *room = arena_alloc(memory, tensor_bytes(result[i]) + size);

        given[i] = result[i]->data = result[i]->rank == 0 ? NULL : room + size;
    }
    o->ok = mha_run(&o->plan, &kernels, parallel, &o->arena, &o->response,
                    &o->err);
    for (int i = 0; i < RESULTS; i++)
        assert_ptr_equal(result[i]->data, given[i]);
}

static void results_are_computed_in_memory_that_the_caller_gives(void **state)
{
    struct fixture *f = *state;
    struct arena memory, scratch;
    struct parallel_serial serial;

    arena_init(&memory, PLENTY);
    arena_init(&scratch, PLENTY);
    parallel_serial_init(&serial, &scratch);
    for (unsigned i = 0; i < 500; i++) {
        struct outcome own, given;

        seed = 300000 + i;
        draw_request();
        run(&own, f, request_text);
        run_in_given_memory(&given, &f->r, &serial.parallel, &memory);
        assert_true(own.ok && given.ok);
        expect_same_response(&own.response, &given.response);
        assert_true((int64_t)given.arena.used_bytes <=
                    given.plan.arena_bytes - given.plan.result_bytes);
        arena_free(&given.arena);
        arena_free(&own.arena);
        arena_reset(&memory, PLENTY);
    }
    arena_free(&scratch);
    arena_free(&memory);
}

static void expect_same_on_threads(struct fixture *f, const char *text)
{
    static const int counts_of_threads[] = { 1, 2, THREADS_MAX };
    struct outcome alone, together;

    run(&alone, f, text);
    assert_true(alone.ok);
    for (int i = 0; i < 3; i++) {
        struct threads threads;

        threads_init(&threads, counts_of_threads[i], PLENTY);
        run_with(&together, &f->r, &threads.parallel, PLENTY);
        assert_true(together.ok);
        expect_same_response(&alone.response, &together.response);
        arena_free(&together.arena);
        threads_free(&threads);
    }
    arena_free(&alone.arena);
}

static const char LARGE[] =
    "query 2 200 48;num_heads 4;returns 63;weights_top_k 5;dropout_p 0.1;"
    "seed 5;average_attn_weights 0;is_causal 1;add_zero_attn 1;"
    "state_dict.in_proj_weight 144 48;state_dict.in_proj_bias 144;"
    "state_dict.bias_k 1 1 48;state_dict.bias_v 1 1 48;"
    "state_dict.out_proj.weight 300 48;state_dict.out_proj.bias 300;"
    "compare_output 2 200 300";

static void any_number_of_threads_gives_the_same_bytes(void **state)
{
    expect_same_on_threads(*state, LARGE);
    expect_same_on_threads(*state, "precision 2;query 2 300 49;num_heads 4;"
                                   "state_dict.query.weight 260 49;"
                                   "state_dict.key.weight 260 49");
    for (unsigned i = 0; i < 40; i++) {
        seed = 100000 + i;
        draw_request();
        expect_same_on_threads(*state, request_text);
    }
}

static void memory_that_ends_anywhere_is_told_and_harms_nothing(void **state)
{
    struct fixture *f = *state;
    struct outcome o = { .ok = false };
    struct arena scratch;
    struct parallel_serial serial;
    int refused = 0;

    request_of(f, LARGE);
    arena_init(&scratch, PLENTY);
    parallel_serial_init(&serial, &scratch);
    for (size_t cap = 0; !o.ok; cap += 20000) {
        run_with(&o, &f->r, &serial.parallel, cap);
        refused += !o.ok;
        assert_int_equal(o.err.code, o.ok ? ERR_NONE : ERR_OVERLOADED);
        arena_free(&o.arena);
    }
    assert_true(refused > 10);
    arena_free(&scratch);

    o.ok = false;
    for (size_t cap = 0; !o.ok; cap += 4096) {
        arena_init(&scratch, cap);
        run_with(&o, &f->r, &serial.parallel, PLENTY);
        assert_int_equal(o.err.code, o.ok ? ERR_NONE : ERR_OVERLOADED);
        if (o.ok)
            assert_true((int64_t)cap <= o.plan.scratch_bytes + 2 * 65536);
        arena_free(&o.arena);
        arena_free(&scratch);
    }
}

static void sizes_beyond_every_memory_are_planned_and_not_taken(void **state)
{
    struct fixture *f = *state;
    struct outcome o;
    struct arena scratch;
    struct parallel_serial serial;
    const int64_t dim[] = { 1 << 30, 4 };

    request_of(f, "query 2 4;num_heads 4;returns 8;average_attn_weights 0");
    f->r.query.value = tensor_packed(f->numbers, DTYPE_F32, 2, dim);
    arena_init(&scratch, PLENTY);
    parallel_serial_init(&serial, &scratch);
    run_with(&o, &f->r, &serial.parallel, PLENTY);
    assert_int_equal(o.plan.arena_bytes, INT64_MAX);
    assert_false(o.ok);
    assert_int_equal(o.err.code, ERR_OVERLOADED);
    assert_int_equal(o.arena.used_bytes, 0);
    arena_free(&o.arena);
    arena_free(&scratch);
}

static void expect_not_finite(struct outcome *o, const char *name)
{
    assert_false(o->ok);
    assert_int_equal(o->err.code, ERR_NOT_FINITE);
    assert_string_equal(o->err.where, "");
    if (strncmp(o->err.text, name, strlen(name)) != 0)
        fail_msg("not %s: %s", name, o->err.text);
    arena_free(&o->arena);
}

static void set_all(const struct tensor *t, float value)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t->data)[i] = value;
}

static void a_result_that_is_not_finite_is_told_by_name(void **state)
{
    struct fixture *f = *state;
    struct outcome o;
    struct arena scratch;
    struct parallel_serial serial;

    arena_init(&scratch, PLENTY);
    parallel_serial_init(&serial, &scratch);
    request_of(f, "query 2 4;value 2 4;returns 4;state_dict.in_proj_weight 12 "
                  "4;state_dict.out_proj.weight 4 4");
    set_all(&f->r.value.value, 3e38f);
    set_all(&f->r.state_dict.item[0].value, 1);
    run_with(&o, &f->r, &serial.parallel, PLENTY);
    expect_not_finite(&o, "output[0][0]");

    request_of(f, "query 2 1;value 2 1;returns 4;num_heads 1;"
                  "state_dict.in_proj_weight 3 1;attn_mask? 2 2");
    set_all(&f->r.state_dict.item[0].value, 1e20f);
    set_all(&f->r.value.value, 1e20f);
    set_all(&f->r.query.value, 0);
    memset(f->r.attn_mask.value.data, 1, 4);
    run_with(&o, &f->r, &serial.parallel, PLENTY);
    expect_not_finite(&o, "v[0][0][0]");
    arena_free(&scratch);
}

/* Row 1 of the keys overflows in its projection, but it is padding. */
static void what_overflows_behind_padding_reaches_nothing(void **state)
{
    struct fixture *f = *state;
    struct outcome o;
    struct arena scratch;
    struct parallel_serial serial;

    arena_init(&scratch, PLENTY);
    parallel_serial_init(&serial, &scratch);
    for (unsigned returns = 0; returns < 64; returns++) {
        bool asked = (returns & (MHA_RETURN_K | MHA_RETURN_V)) != 0;

        request_of(f, "query 3 2;key 3 2;key_padding_mask? 3;num_heads 2;"
                      "state_dict.in_proj_weight 6 2");
        f->r.returns = returns;
        set_all(&f->r.state_dict.item[0].value, 2);
        memcpy(f->r.key_padding_mask.value.data, (uint8_t[]){ 0, 1, 0 }, 3);
        ((float *)f->r.key.value.data)[2] = 3e38f;
        run_with(&o, &f->r, &serial.parallel, PLENTY);
        if (asked) {
            expect_not_finite(&o, returns & MHA_RETURN_K ? "k[0][1]"
                                                         : "v[0][1]");
            continue;
        }
        assert_true(o.ok);
        assert_true(((float *)o.response.weights.data)[1] == 0);
        arena_free(&o.arena);
    }
    arena_free(&scratch);
}

static void weights_asked_for_or_not_never_change_the_output(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < 100; i++) {
        struct outcome with, without;

        seed = 200000 + i;
        draw_request();
        run(&with, f, request_text);
        f->r.need_weights = !f->r.need_weights;
        f->r.average_attn_weights = true;
        f->r.returns = 0;
        f->r.compare_weights.value.rank = 0;

        struct arena scratch;
        struct parallel_serial serial;

        arena_init(&scratch, PLENTY);
        parallel_serial_init(&serial, &scratch);
        run_with(&without, &f->r, &serial.parallel, PLENTY);
        expect_same_bytes("output", &with.response.output,
                          &without.response.output);
        arena_free(&scratch);
        arena_free(&with.arena);
        arena_free(&without.arena);
    }
}

static void without_projections_nothing_is_copied(void **state)
{
    struct fixture *f = *state;
    struct outcome o;
    int64_t output = 2 * 64 * 96 * 4;

    run(&o, f, "query 64 2 96;key 64 2 96;value 64 2 96;layout 2;num_heads 6;"
               "need_weights 0");
    assert_true(o.ok);
    assert_true(o.plan.arena_bytes >= output);
    assert_true(o.plan.arena_bytes < 2 * output);
    arena_free(&o.arena);
}

static void top_k_of_weights_not_needed_takes_no_memory(void **state)
{
    struct outcome o;

    run(&o, *state, "query 512 4;need_weights 0;weights_top_k 3");
    assert_true(o.ok);
    assert_int_equal(o.response.top_indices.rank, 0);
    assert_int_equal(o.response.weights.rank, 0);
    assert_true(o.plan.arena_bytes < 512 * 512);
    arena_free(&o.arena);
}

static void steps_have_their_flops_by_formula(void **state)
{
    struct mha_plan p;
    struct error err = { 0 };

    assert_true(mha_check(request_of(*state, "query 1 64 64;num_heads 4"), &p,
                          &err));
    assert_true(p.flops[MHA_PROJECTIONS] == 0);
    assert_true(p.flops[MHA_SIMILARITY] == 524288); /* the contract's own */
    assert_true(p.flops[MHA_SOFTMAX] == 5 * 4 * 64 * 64);
    assert_true(p.flops[MHA_WEIGHTED_SUM] == 524288);
    assert_true(p.flops[MHA_OUTPUT_PROJECTION] == 0);

    assert_true(mha_check(
        request_of(*state, "query 2 3 4;key 2 5 6;value 2 5 7;num_heads 2;"
                           "state_dict.query.weight 8 4;state_dict.key.weight "
                           "8 6;state_dict.value.weight 10 7;"
                           "state_dict.out_proj.weight 9 10"), &p, &err));
    assert_true(p.flops[MHA_PROJECTIONS] ==
                2 * 2 * (3 * 4 * 8 + 5 * 6 * 8 + 5 * 7 * 10));
    assert_true(p.flops[MHA_OUTPUT_PROJECTION] == 2 * 2 * 3 * 10 * 9);
}

static void steps_that_ran_took_time(void **state)
{
    struct outcome o;

    run(&o, *state, LARGE);
    assert_true(o.ok);
    for (int i = 0; i < MHA_STEPS; i++)
        assert_true(o.response.step_ns[i] > 0);
    arena_free(&o.arena);
}

static void a_comparison_names_the_worst_weight_of_whole_rows(void **state)
{
    struct fixture *f = *state;
    struct outcome o;
    struct arena scratch;
    struct parallel_serial serial;
    float *expected;

    arena_init(&scratch, PLENTY);
    parallel_serial_init(&serial, &scratch);
    request_of(f, "query 2 3 2;compare_weights 2 3 3;need_weights 0");
    set_all(&f->r.query.value, 0);
    expected = f->r.compare_weights.value.data;
    set_all(&f->r.compare_weights.value, 1.0f / 3);
    expected[9 + 3 + 2] = 0.5f;
    run_with(&o, &f->r, &serial.parallel, PLENTY);
    assert_true(o.ok);

    const struct comparison *c = &o.response.compare_weights;

    assert_true(c->present);
    assert_false(o.response.compare_output.present);
    assert_int_equal(o.response.weights.rank, 0);
    assert_int_equal(c->rank, 3);
    assert_int_equal(c->index[0], 1);
    assert_int_equal(c->index[1], 1);
    assert_int_equal(c->index[2], 2);
    assert_true(c->expected == 0.5);
    assert_true(fabs(c->max_rel - 1.0 / 3) < 1e-6);
    arena_free(&o.arena);
    arena_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_request_is_what_naive_loops_in_double_say),
        cmocka_unit_test(sizes_past_a_block_of_the_projections_agree_too),
        cmocka_unit_test(results_are_computed_in_memory_that_the_caller_gives),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bytes),
        cmocka_unit_test(memory_that_ends_anywhere_is_told_and_harms_nothing),
        cmocka_unit_test(sizes_beyond_every_memory_are_planned_and_not_taken),
        cmocka_unit_test(a_result_that_is_not_finite_is_told_by_name),
        cmocka_unit_test(what_overflows_behind_padding_reaches_nothing),
        cmocka_unit_test(weights_asked_for_or_not_never_change_the_output),
        cmocka_unit_test(without_projections_nothing_is_copied),
        cmocka_unit_test(top_k_of_weights_not_needed_takes_no_memory),
        cmocka_unit_test(steps_have_their_flops_by_formula),
        cmocka_unit_test(steps_that_ran_took_time),
        cmocka_unit_test(a_comparison_names_the_worst_weight_of_whole_rows),
    };

    kernels_single_threaded();
    kernels_select(cpu_features(), NULL, &kernels);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
