/* Property: a checkpoint is refused with a reason, or every layer of it can be
 * found in every precision, with weights that fit each other. */

#include "server/model.h"
#include "tests/fuzz/safetensors_mutator.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool held)
{
    if (!held)
        abort();
}

static void check_layer(struct model *model, int64_t number,
                        enum precision precision)
{
    struct mha_model layer;
    struct error err = { 0 };

    must(model_find_layer(model, number, precision, &layer, &err));

    const struct weights *w = layer.weights;

    must(w->q.weight.rank == 2 && w->k.weight.rank == 2 &&
         w->v.weight.rank == 2);
    must(w->q.weight.dim[0] == w->k.weight.dim[0]);
    must(w->out.weight.rank == 0 ||
         w->out.weight.dim[1] == w->v.weight.dim[0]);
    must(layer.num_heads == 0 || w->q.weight.dim[0] % layer.num_heads == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct bytes file = { data, len };
    struct error err = { 0 };
    struct model *model = model_new("m", NULL, &file, 1, (struct bytes){ 0 }, &err);

    must((model == NULL) == (err.code != ERR_NONE));
    for (int64_t i = 0; model != NULL && i < model->layers; i++) {
        for (int p = 0; p <= PRECISION_BF16; p++)
            check_layer(model, i, (enum precision)p);
    }
    model_release(model);
    return 0;
}
