#ifndef TESTS_UNIT_REQUEST_DRAW_H
#define TESTS_UNIT_REQUEST_DRAW_H

#include "tests/unit/request_text.h"

/* Random requests, all sound, with every option the core has. */

static char request_text[TEXT_MAX]; /* what a failure prints */

struct writer {
    char *at;
    size_t room;
};

__attribute__((format(printf, 2, 3))) static void
put(struct writer *w, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(w->at, w->room, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < w->room);
    w->at += n;
    w->room -= (size_t)n;
}

struct sizes {
    enum layout layout;
    int N, L, S, H, G, D, Dv, E, kdim, vdim;
    int kind; /* 0 no state_dict, 1 packed, 2 separate, 3 BERT, 4 shared */
    bool has_key, has_value;
};

static int one_to(int most)
{
    return 1 + (int)draw((unsigned)most);
}

static struct sizes draw_sizes(void)
{
    static const int heads[][2] = { { 1, 1 }, { 2, 2 }, { 2, 1 }, { 4, 2 },
                                    { 3, 3 }, { 3, 1 }, { 6, 2 } };
    const int *HG = heads[draw(7)];
    struct sizes s = {
        .layout = (enum layout)(1 + draw(4)),
        .N = one_to(3), .L = one_to(6), .S = one_to(7),
        .H = HG[0], .G = HG[1], .D = one_to(5), .Dv = one_to(5),
        .kind = (int)draw(5), .has_key = draw(3) != 0,
        .has_value = draw(2) != 0,
    };

    s.N = s.layout == LAYOUT_LE ? 1 : s.N;
    s.kind = s.layout == LAYOUT_NHLD ? 0 : s.kind;
    s.G = s.kind == 1 ? s.H : s.G;
    s.Dv = s.kind == 1 || s.kind == 2 || s.kind == 4 ? s.D : s.Dv;
    s.E = s.kind < 3 ? s.H * s.D : one_to(9);
    s.kdim = s.kind == 0 ? s.G * s.D : s.kind == 1 ? s.E : one_to(9);
    s.vdim = s.kind == 0   ? s.G * s.Dv
             : s.kind == 1 ? s.E
             : s.kind == 4 ? s.kdim
                           : one_to(9);
    if (!s.has_key) { /* the query is the key as well */
        s.G = s.kind == 0 ? s.H : s.G;
        s.S = s.L;
        s.kdim = s.E;
        s.vdim = s.kind == 0 ? s.G * s.Dv : s.kind == 4 ? s.E : s.vdim;
    }
    if (!s.has_value) {
        s.vdim = s.kdim;
        s.Dv = s.kind == 0 ? s.D : s.Dv;
    }
    return s;
}

static void put_input(struct writer *w, const struct sizes *s,
                      const char *name, int rows, int heads, int width)
{
    switch (s->layout) {
    case LAYOUT_LE: put(w, "%s %d %d;", name, rows, width); break;
    case LAYOUT_LNE: put(w, "%s %d %d %d;", name, rows, s->N, width); break;
    case LAYOUT_NHLD:
        put(w, "%s %d %d %d %d;", name, s->N, heads, rows, width / heads);
        break;
    default: put(w, "%s %d %d %d;", name, s->N, rows, width);
    }
}

static void put_state_dict(struct writer *w, const struct sizes *s)
{
    int A = s->H * s->D, K = s->G * s->D, V = s->G * s->Dv;
    int out = one_to(9);

    if (s->kind == 1)
        put(w, "state_dict.in_proj_weight %d %d;", 3 * A, A);
    if (s->kind == 2)
        put(w, "state_dict.q_proj_weight %d %d;state_dict.k_proj_weight %d %d;"
               "state_dict.v_proj_weight %d %d;", A, A, K, s->kdim, V, s->vdim);
    if (s->kind >= 3)
        put(w, "state_dict.query.weight %d %d;state_dict.key.weight %d %d;", A,
            s->E, K, s->kdim);
    if (s->kind == 3)
        put(w, "state_dict.value.weight %d %d;", V, s->vdim);
    if (s->kind >= 3 && draw(2))
        put(w, "state_dict.query.bias %d;state_dict.key.bias %d;", A, K);
    if (s->kind == 3 && draw(2))
        put(w, "state_dict.value.bias %d;", V);
    if (s->kind < 3 && draw(2))
        put(w, "state_dict.in_proj_bias %d;", A + K + V);
    if (s->kind < 3 && draw(2))
        put(w, "state_dict.bias_k 1 1 %d;state_dict.bias_v 1 1 %d;", K, V);
    if (draw(2))
        put(w, "state_dict.out_proj.weight %d %d;%s", out, s->H * s->Dv,
            draw(2) ? "" : "state_dict.out_proj.bias ");
    if (w->at[-1] == ' ')
        put(w, "%d;", out);
}

static void put_attn_mask(struct writer *w, const struct sizes *s,
                          int conventions)
{
    int batches = conventions == CONVENTIONS_KERAS ||
                  (conventions == CONVENTIONS_TORCH_MHA && draw(2));
    int both = conventions == CONVENTIONS_TORCH_MHA ? s->N : 1;

    put(w, "attn_mask%s ", draw(2) ? "?" : "-");
    switch (draw(3)) {
    case 0: put(w, "%d %d;", s->L, s->S); break;
    case 1:
        put(w, "%d %d %d;", batches ? s->N : both * s->H, s->L, s->S);
        break;
    default:
        put(w, "%d %d %d %d;", draw(2) ? 1 : s->N, draw(2) ? 1 : s->H,
            draw(2) ? 1 : s->L, draw(2) ? 1 : s->S);
    }
}

static void put_key_mask(struct writer *w, const struct sizes *s,
                         const char *name)
{
    put(w, "%s%s ", name, draw(2) ? "?" : "%");
    if (s->layout != LAYOUT_LE)
        put(w, "%d ", s->N);
    put(w, "%d;", s->S);
}

static void put_masks(struct writer *w, const struct sizes *s)
{
    int conventions = (int)draw(6);

    put(w, "conventions %d;causal_alignment %u;", conventions, draw(3));
    if (draw(3) == 0)
        put_key_mask(w, s, "key_padding_mask");
    if (draw(3) == 0)
        put_key_mask(w, s, "attention_mask");
    if (draw(3) == 0)
        put(w, "mask_filter_value -3.5;");
    if (draw(2))
        put_attn_mask(w, s, conventions);
    if (draw(3) == 0)
        put(w, "is_causal 1;");
    if (draw(3) == 0)
        put(w, "window %d %d;", (int)draw(4) - 1, (int)draw(4) - 1);
}

static void put_options(struct writer *w, const struct sizes *s, bool zeros)
{
    int extra = zeros + (strstr(request_text, "bias_k") != NULL);
    bool mean = draw(2) == 0;

    put(w, "add_zero_attn %d;average_attn_weights %d;", zeros, mean);
    if (s->layout != LAYOUT_NHLD)
        put(w, "num_heads %d;num_kv_heads %d;", s->H, s->G);
    if (draw(3) == 0)
        put(w, "scale %g;", draw_number());
    if (draw(4) == 0)
        put(w, "softcap 0.5;");
    if (draw(4) == 0)
        put(w, "alibi_slopes %d;", s->H);
    if (draw(4) == 0)
        put(w, "sinks %d;", s->H);
    if (draw(4) == 0)
        put(w, "need_weights 0;");
    if (draw(3) == 0)
        put(w, "weights_top_k %d;", one_to(s->S + extra));
    if (draw(2))
        put(w, "returns %u;", draw(64));
    if (draw(4) == 0 && s->layout != LAYOUT_LE && mean)
        put(w, "compare_weights %d %d %d;", s->N, s->L, s->S + extra);
    if (draw(4) == 0 && strstr(request_text, "out_proj") == NULL)
        put_input(w, s, "compare_output", s->L, s->H, s->H * s->Dv);
}

/* Any sound request, into request_text. */
static void draw_request(void)
{
    struct writer w = { request_text, sizeof request_text };
    struct sizes s = draw_sizes();

    put(&w, "precision %u;layout %u;", draw(3), (unsigned)s.layout);
    put_input(&w, &s, "query", s.L, s.H, s.E);
    if (s.has_key)
        put_input(&w, &s, "key", s.S, s.G, s.kdim);
    if (s.has_value)
        put_input(&w, &s, "value", s.S, s.G, s.vdim);
    if (s.kind != 0)
        put_state_dict(&w, &s);
    put_masks(&w, &s);
    put_options(&w, &s, draw(3) == 0);
}

#endif
