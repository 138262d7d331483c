// Vectors of the level's own width for the attention kernels, conversions of the three dtypes, exp2 and tanh.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "scalar.h"

namespace jf::JF_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vf __attribute__((vector_size(4 * kLanes)));
typedef int32_t Vi __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Vu __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Vh __attribute__((vector_size(2 * kLanes)));

template <class V, class T>
inline V load(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof(V));
    return v;
}
template <class V, class T>
inline void store(T* to, V v) {
    std::memcpy(to, &v, sizeof(V));
}
template <class To, class From>
inline To as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}
inline Vf all(float x) { return Vf{} + x; }
inline Vi lane_numbers() {
    Vi v{};
    for (int i = 0; i < kLanes; ++i) v[i] = i;
    return v;
}

inline Vf to_floats(const float* from) { return load<Vf>(from); }
inline Vf to_floats(const bf16_t* from) { return as<Vf>(__builtin_convertvector(load<Vh>(from), Vu) << 16); }
inline Vf to_floats(const f16_t* from) {
#if defined(__AVX512F__)
    return as<Vf>(_mm512_maskz_cvtph_ps(0xffff, load<__m256i>(from)));
#elif defined(__AVX2__)
    return as<Vf>(_mm256_cvtph_ps(load<__m128i>(from)));
#else
    Vf v{};
    for (int i = 0; i < kLanes; ++i) v[i] = to_float(from[i]);
    return v;
#endif
}

inline void from_floats(Vf x, float* to) { store(to, x); }
inline void from_floats(Vf x, bf16_t* to) {
#if defined(__AVX512BF16__)
    store(to, _mm512_cvtneps_pbh(as<__m512>(x)));
#else
    const Vu bits = as<Vu>(x);
    const Vu rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    store(to, __builtin_convertvector(x == x ? rounded : Vu{} + 0x7fc0, Vh));
#endif
}
inline void from_floats(Vf x, f16_t* to) {
#if defined(__AVX512F__)
    store(to, _mm512_cvtps_ph(as<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    store(to, _mm256_cvtps_ph(as<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < kLanes; ++i) to[i] = from_float<f16_t>(x[i]);
#endif
}

// The first n (at most kLanes) of them, the others 0; no byte beyond is read.
template <class T>
inline Vf to_floats(const T* from, int n) {
    if (n >= kLanes) return to_floats(from);
    T part[kLanes] = {};
    std::memcpy(part, from, n * sizeof(T));
    return to_floats(part);
}
template <class T>
inline void from_floats(Vf x, T* to, int n) {
    if (n >= kLanes) return from_floats(x, to);
    T part[kLanes];
    from_floats(x, part);
    std::memcpy(to, part, n * sizeof(T));
}

inline float sum_of(Vf v) {
    float sum = 0;
    for (int i = 0; i < kLanes; ++i) sum += v[i];
    return sum;
}
inline float largest_of(Vf v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps(as<__m512>(v));
#else
    float most = v[0];
    for (int i = 1; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
    return most;
#endif
}

inline Vf larger(Vf a, Vf b) {  // b where one is NaN
#if defined(__AVX512F__)
    return as<Vf>(_mm512_max_ps(as<__m512>(a), as<__m512>(b)));
#else
    return a > b ? a : b;
#endif
}

// 2**x for x <= 0 or little more, to 1.5e-7 of it, or, roughly, to 3e-6; 0 below -127, NaN for NaN. The polynomials are those
// with the least relative error on [0, 1] and on [-1/2, 1/2].
template <bool kRough = false>
inline Vf exp2_of(Vf x) {
#if defined(__AVX512F__)
    x = larger(all(-150.0f), x);
    const Vf r = as<Vf>(_mm512_reduce_ps(as<__m512>(x), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
    Vf p;
    if constexpr (kRough) {
        p = all(1.353416820e-02f);
        p = p * r + 5.201146354e-02f;
        p = p * r + 2.414427523e-01f;
        p = p * r + 6.930038363e-01f;
    } else {
        p = all(2.170225576e-04f);
        p = p * r + 1.243968813e-03f;
        p = p * r + 9.678840912e-03f;
        p = p * r + 5.548334206e-02f;
        p = p * r + 2.402298362e-01f;
        p = p * r + 6.931469838e-01f;
    }
    p = p * r + 1.0f;
    return as<Vf>(_mm512_scalef_ps(as<__m512>(p), as<__m512>(x)));  // * 2**floor(x)
#else
    x = larger(all(-127.0f), x);
    const Vf shifted = x + 0x1.8p23f;  // the nearest integer stands in the low bits
    const Vf r = x - (shifted - 0x1.8p23f);
    Vf p = all(1.326472739e-03f);
    p = p * r + 9.671512917e-03f;
    p = p * r + 5.550733745e-02f;
    p = p * r + 2.402224208e-01f;
    p = p * r + 6.931469776e-01f;
    p = p * r + 1.0f;
    return p * as<Vf>(as<Vi>(as<Vu>(shifted) << 23) + (127 << 23));
#endif
}

// tanh to some 1e-7 of it: a polynomial near 0, where the exponential would lose digits.
inline Vf tanh_of(Vf x) {
    const Vf size = x < 0 ? -x : x, square = x * x;
    Vf p = all(-5.515121860e-03f);
    p = p * square + 2.046938097e-02f;
    p = p * square + -5.368801084e-02f;
    p = p * square + 1.333083020e-01f;
    p = p * square + -3.333325984e-01f;
    const Vf near = x + x * square * p;
    const Vf e = exp2_of(size * -2.885390082f);  // exp(-2 |x|)
    const Vf far = (1.0f - e) / (1.0f + e);
    return size < all(0.65f) ? near : (x < 0 ? -far : far);
}

// rows[i][j] <-> rows[j][i], in log2(kLanes) exchanges of blocks
template <int kStep, int... kLane>
inline void exchange(Vu& a, Vu& b, std::integer_sequence<int, kLane...>) {
#if defined(__clang__)
    const Vu low = __builtin_shufflevector(a, b, ((kLane & kStep) ? kLanes + (kLane ^ kStep) : kLane)...);
    b = __builtin_shufflevector(a, b, ((kLane & kStep) ? kLanes + kLane : (kLane ^ kStep))...);
#else
    const Vu low = __builtin_shuffle(a, b, Vi{((kLane & kStep) ? kLanes + (kLane ^ kStep) : kLane)...});
    b = __builtin_shuffle(a, b, Vi{((kLane & kStep) ? kLanes + kLane : (kLane ^ kStep))...});
#endif
    a = low;
}
template <int kStep>
inline void transpose_from(Vu (&rows)[kLanes]) {
    if constexpr (kStep < kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            if (!(i & kStep)) exchange<kStep>(rows[i], rows[i | kStep], std::make_integer_sequence<int, kLanes>());
        }
        transpose_from<2 * kStep>(rows);
    }
}
#if defined(__AVX512F__)
// In the cheap shuffles of this width: first inside its quarters, then the quarters.
inline void transpose(Vu (&rows)[16]) {
    __m512i a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        const auto even = as<__m512i>(rows[i]), odd = as<__m512i>(rows[i + 1]);
        a[i] = _mm512_unpacklo_epi32(even, odd);
        a[i + 1] = _mm512_unpackhi_epi32(even, odd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {  // b[i + j]: steps j, j + 4, j + 8, j + 12 of rows i to i + 3
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i low_even = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
        const __m512i low_odd = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
        const __m512i high_even = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
        const __m512i high_odd = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
        rows[j] = as<Vu>(_mm512_shuffle_i32x4(low_even, high_even, 0x88));
        rows[8 + j] = as<Vu>(_mm512_shuffle_i32x4(low_even, high_even, 0xdd));
        rows[4 + j] = as<Vu>(_mm512_shuffle_i32x4(low_odd, high_odd, 0x88));
        rows[12 + j] = as<Vu>(_mm512_shuffle_i32x4(low_odd, high_odd, 0xdd));
    }
}
#else
inline void transpose(Vu (&rows)[kLanes]) { transpose_from<1>(rows); }
#endif

}  // namespace
}  // namespace jf::JF_NAMESPACE
