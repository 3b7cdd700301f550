#!/usr/bin/env python3
"""Prints api/number_powers.def: for q in -342..324 the first 128 bits of 10^q,
rounded down. tests/unit/number_test.c works the rows out again by itself.

    tests/vectors/number_powers.py > api/number_powers.def
"""


def significand(q):
    """floor(10^q * 2^-s) with s such that 2^127 <= result < 2^128; that s is
    what power_scale() in api/number.c works out."""
    scale = ((q * 217706) >> 16) - 127
    if q >= 0:
        power = 10**q
        excess = power.bit_length() - 128
        assert excess == scale
        return power >> excess if excess >= 0 else power << -excess
    power = 10**-q
    shift = power.bit_length() + 127
    assert shift == -scale
    return (1 << shift) // power


print("/* POWER(high 64 bits, low 64 bits) of 10^q, q from -342 to 324.")
print(" * Made by tests/vectors/number_powers.py. */")
for q in range(-342, 325):
    t = significand(q)
    print(f"POWER({t >> 64:#018x}, {t & (1 << 64) - 1:#018x}) /* 1e{q} */")
