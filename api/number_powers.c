#include "api/number_parts.h"

const struct power number_powers[] = {
#define POWER(high, low) { high, low },
#include "api/number_powers.def"
#undef POWER
};

const uint64_t number_tens[] = {
    1,
    10,
    100,
    1000,
    10000,
    100000,
    1000000,
    10000000,
    100000000,
    1000000000,
    10000000000,
    100000000000,
    1000000000000,
    10000000000000,
    100000000000000,
    1000000000000000,
    10000000000000000,
    100000000000000000,
    1000000000000000000,
    10000000000000000000U,
};
