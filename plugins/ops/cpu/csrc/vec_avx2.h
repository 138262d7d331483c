// V in two registers. Included by vec.h alone.
#pragma once

#include <immintrin.h>

namespace jf::JF_NAMESPACE {

struct V {
    __m256 a, b;
};

namespace half {

inline __m256 load(const bf16_t* at) {
    const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(some), 16));
}
inline __m256i to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}
inline __m256 power_of_two(__m256 x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127)), 23));
}
inline __m256 zero_below(__m256 x, float bound, __m256 a) {
    const __m256 kept = _mm256_blendv_ps(a, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_and_ps(kept, _mm256_cmp_ps(x, _mm256_set1_ps(bound), _CMP_NLT_UQ));
}
inline __m256 copy_sign(__m256 a, __m256 b) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b));
}

}  // namespace half

inline V set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
inline V load(const bf16_t* at) { return {half::load(at), half::load(at + 8)}; }
inline V load(const f16_t* at) {
    const __m128i* halves = reinterpret_cast<const __m128i*>(at);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline void store(float* at, V x) {
    _mm256_storeu_ps(at, x.a);
    _mm256_storeu_ps(at + 8, x.b);
}
inline void store(bf16_t* at, V x) {
    const __m256i packed = _mm256_packus_epi32(half::to_bf16(x.a), half::to_bf16(x.b));  // within each half of it
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void store(f16_t* at, V x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    __m128i* halves = reinterpret_cast<__m128i*>(at);
    _mm_storeu_si128(halves, _mm256_cvtps_ph(x.a, kNearest));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(x.b, kNearest));
}
// Elements 0, 2, 4 ... and 1, 3, 5 ... of 32.
inline void load_pairs(const bf16_t* at, V& even, V& odd) {
    const __m256i* both = reinterpret_cast<const __m256i*>(at);
    const __m256i first = _mm256_loadu_si256(both), second = _mm256_loadu_si256(both + 1);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(first, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(second, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(first, high)), _mm256_castsi256_ps(_mm256_and_si256(second, high))};
}

inline V operator+(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline V operator-(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline V operator*(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline V operator/(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline V fma_(V x, V y, V z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
// Of a NaN and a number: y.
inline V max_(V x, V y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline V min_(V x, V y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline V abs_(V x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline V nearest(V x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
}
// 2^x of whole numbers -126 .. 127.
inline V power_of_two(V x) { return {half::power_of_two(x.a), half::power_of_two(x.b)}; }
// 0 where x < bound, else y; a NaN of x stays one.
inline V zero_below(V x, float bound, V y) { return {half::zero_below(x.a, bound, y.a), half::zero_below(x.b, bound, y.b)}; }
// x with the sign of y.
inline V copy_sign(V x, V y) { return {half::copy_sign(x.a, y.a), half::copy_sign(x.b, y.b)}; }
inline float sum(V x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline float largest(V x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

}  // namespace jf::JF_NAMESPACE
