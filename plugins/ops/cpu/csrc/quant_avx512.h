// Lanes in one register. Included by quant_lanes.h alone.
#pragma once

#include <immintrin.h>

namespace jf::JF_NAMESPACE {

struct Ints {
    __m512i v;
};
using Codes = __m512i;

inline V to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline V bytes(const uint8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline V signed_bytes(const uint8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline Ints spread(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Codes load_codes(const uint8_t* p) { return _mm512_load_si512(p); }
inline Codes low_half(Codes a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
inline Codes high_half(Codes a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15)); }
// The pair of bits `which` of every byte, at bits 4 and 5.
template <int which>
inline Codes upper_bits(Codes a) {
    const Codes wanted = _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(3 << 2 * which)));
    if constexpr (which < 2) return _mm512_slli_epi16(wanted, 4 - 2 * which);
    if constexpr (which > 2) return _mm512_srli_epi16(wanted, 2 * which - 4);
    return wanted;
}
inline Codes join(Codes a, Codes b) { return _mm512_or_si512(a, b); }
// Column `which` of a quad.
template <int which>
inline V column(Codes a) {
    if constexpr (which < 3) a = _mm512_and_si512(_mm512_srli_epi32(a, 8 * which), _mm512_set1_epi32(255));
    if constexpr (which == 3) a = _mm512_srli_epi32(a, 24);
    return {_mm512_cvtepi32_ps(a)};
}

#if defined(__AVX512VNNI__)

inline void add_products(Ints& upper, Ints& lower, Codes codes, const int32_t* words) {
    upper.v = _mm512_dpbusd_epi32(upper.v, codes, _mm512_set1_epi32(words[0]));
    lower.v = _mm512_dpbusd_epi32(lower.v, codes, _mm512_set1_epi32(words[1]));
}
inline Ints joined(Ints upper, Ints lower) {
    return {_mm512_add_epi32(_mm512_slli_epi32(upper.v, 7), lower.v)};
}

#else

inline void add_products(Ints& first, Ints& second, Codes codes, const int32_t* words) {
    const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(codes, 8);
    first.v = _mm512_add_epi32(first.v, _mm512_madd_epi16(even, _mm512_set1_epi32(words[0])));
    second.v = _mm512_add_epi32(second.v, _mm512_madd_epi16(odd, _mm512_set1_epi32(words[1])));
}
inline Ints joined(Ints first, Ints second) { return {_mm512_add_epi32(first.v, second.v)}; }

#endif

}  // namespace jf::JF_NAMESPACE
