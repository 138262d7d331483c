// V: sixteen floats at the level that the file is compiled for, so that a kernel is written once.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "scalar.h"

#if defined(__AVX512F__)
#include "vec_avx512.h"
#elif defined(__AVX2__)
#include "vec_avx2.h"
#else
#include "vec_portable.h"
#endif

namespace jf::JF_NAMESPACE {

constexpr int kLanes = 16;

inline V operator-(V a) { return set1(0.0f) - a; }
inline V load(const float* at, int count) {
    float some[kLanes] = {};
    std::memcpy(some, at, count * sizeof(float));
    return load(some);
}
template <class T>
V load(const T* at, int count) {
    T some[kLanes] = {};
    std::memcpy(some, at, count * sizeof(T));
    return load(some);
}
template <class T>
void store(T* at, V a, int count) {
    T some[kLanes];
    store(some, a);
    std::memcpy(at, some, count * sizeof(T));
}

// The value that it has once it was stored as T.
inline V rounded(V a, float) { return a; }
#if defined(__AVX512F__)
inline V rounded(V a, bf16_t) { return round_to_bf16(a); }
#endif
template <class T>
V rounded(V a, T) {
    T some[kLanes];
    store(some, a);
    return load(some);
}

// e^x, within 2 units in the last place, of x from -87.3 to 88.
inline V exp_inside(V x) {
    const V turns = nearest(x * set1(1.44269504088896341f));
    V rest = fma_(turns, set1(-0.693359375f), x);
    rest = fma_(turns, set1(2.12194440e-4f), rest);
    V sum = set1(1.9875691500e-4f);
    sum = fma_(sum, rest, set1(1.3981999507e-3f));
    sum = fma_(sum, rest, set1(8.3334519073e-3f));
    sum = fma_(sum, rest, set1(4.1665795894e-2f));
    sum = fma_(sum, rest, set1(1.6666665459e-1f));
    sum = fma_(sum, rest, set1(5.0000001201e-1f));
    sum = fma_(sum, rest * rest, rest + set1(1.0f));
    return sum * power_of_two(turns);
}
inline V clipped(V x) { return min_(max_(x, set1(-87.33654f)), set1(88.0f)); }
// e^x of any x: 0 below -87.3, and at most e^88.
inline V exp_(V x) { return zero_below(x, -87.33654f, exp_inside(clipped(x))); }

}  // namespace jf::JF_NAMESPACE
