// Lanes in two registers. Included by quant_lanes.h alone.
#pragma once

#include <immintrin.h>

namespace jf::JF_NAMESPACE {

struct Ints {
    __m256i a, b;
};
struct Codes {
    __m256i a, b;
};

inline V to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline V bytes(const uint8_t* p) {
    const __m128i x = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    return to_floats({_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))});
}
inline V signed_bytes(const uint8_t* p) {
    const __m128i x = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    return to_floats({_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))});
}
inline Ints spread(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Codes load_codes(const uint8_t* p) {
    const auto* at = reinterpret_cast<const __m256i*>(p);
    return {_mm256_load_si256(at), _mm256_load_si256(at + 1)};
}
inline Codes masked(Codes x, int mask) {
    const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
inline Codes low_half(Codes x) { return masked(x, 15); }
inline Codes high_half(Codes x) { return masked({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)}, 15); }
template <int which>
inline Codes upper_bits(Codes x) {
    const Codes wanted = masked(x, 3 << 2 * which);
    if constexpr (which < 2) {
        return {_mm256_slli_epi16(wanted.a, 4 - 2 * which), _mm256_slli_epi16(wanted.b, 4 - 2 * which)};
    }
    if constexpr (which > 2) {
        return {_mm256_srli_epi16(wanted.a, 2 * which - 4), _mm256_srli_epi16(wanted.b, 2 * which - 4)};
    }
    return wanted;
}
inline Codes join(Codes x, Codes y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
template <int which>
inline V column(Codes x) {
    const __m256i m = _mm256_set1_epi32(255);
    return to_floats({_mm256_and_si256(_mm256_srli_epi32(x.a, 8 * which), m),
                      _mm256_and_si256(_mm256_srli_epi32(x.b, 8 * which), m)});
}

inline void add_products(Ints& first, Ints& second, Codes codes, const int32_t* words) {
    const __m256i mask = _mm256_set1_epi16(255), x = _mm256_set1_epi32(words[0]), y = _mm256_set1_epi32(words[1]);
    first.a = _mm256_add_epi32(first.a, _mm256_madd_epi16(_mm256_and_si256(codes.a, mask), x));
    first.b = _mm256_add_epi32(first.b, _mm256_madd_epi16(_mm256_and_si256(codes.b, mask), x));
    second.a = _mm256_add_epi32(second.a, _mm256_madd_epi16(_mm256_srli_epi16(codes.a, 8), y));
    second.b = _mm256_add_epi32(second.b, _mm256_madd_epi16(_mm256_srli_epi16(codes.b, 8), y));
}
inline Ints joined(Ints first, Ints second) {
    return {_mm256_add_epi32(first.a, second.a), _mm256_add_epi32(first.b, second.b)};
}

}  // namespace jf::JF_NAMESPACE
