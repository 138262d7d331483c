// V in one register. Included by vec.h alone.
#pragma once

#include <immintrin.h>

namespace jf::JF_NAMESPACE {

struct V {
    __m512 v;
};

inline V set1(float x) { return {_mm512_set1_ps(x)}; }
inline V load(const float* at) { return {_mm512_loadu_ps(at)}; }
inline V from_bf16(__m256i bits) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))}; }
inline V load(const bf16_t* at) { return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))); }
inline V load(const f16_t* at) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)))}; }
inline void store(float* at, V a) { _mm512_storeu_ps(at, a.v); }
#if defined(__AVX512BF16__)
// To nearest, ties to even; numbers below 2^-126 become 0, which products of this level make of them anyway.
inline __m256i as_bf16(V a) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a.v)); }
#else
inline __m256i as_bf16(V a) {
    const __m512i bits = _mm512_castps_si512(a.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
#endif
inline V round_to_bf16(V a) { return from_bf16(as_bf16(a)); }
inline void store(bf16_t* at, V a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), as_bf16(a)); }
inline void store(f16_t* at, V a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Elements 0, 2, 4 ... and 1, 3, 5 ... of 32.
inline void load_pairs(const bf16_t* at, V& even, V& odd) {
    const __m512i both = _mm512_loadu_si512(at);
    even.v = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    odd.v = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

inline V operator+(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V operator-(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V operator*(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V operator/(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V fma_(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// Of a NaN and a number: b.
inline V max_(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }
inline V min_(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V abs_(V a) { return {_mm512_abs_ps(a.v)}; }
inline V nearest(V a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// 2^a of whole numbers -126 .. 127.
inline V power_of_two(V a) {
    const __m512i n = _mm512_add_epi32(_mm512_cvtps_epi32(a.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}
// 0 where x < bound, else a; a NaN of x stays one.
inline V zero_below(V x, float bound, V a) {
    const V kept = {_mm512_mask_mov_ps(a.v, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), x.v)};
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLT_UQ), kept.v)};
}
// a with the sign of b.
inline V copy_sign(V a, V b) {
    const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000));
    return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, _mm512_castps_si512(b.v), _mm512_castps_si512(a.v), 0xca))};
}
inline float sum(V a) { return _mm512_reduce_add_ps(a.v); }
inline float largest(V a) { return _mm512_reduce_max_ps(a.v); }

}  // namespace jf::JF_NAMESPACE
