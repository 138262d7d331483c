// The element types and their conversions one by one; vec.h has them sixteen at a time.
#pragma once

#include <cstdint>
#include <cstring>

namespace jf {

struct bf16_t {
    uint16_t bits;
};
struct f16_t {
    uint16_t bits;
};

inline float as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t as_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float to_float(float value) { return value; }
inline float to_float(bf16_t value) { return as_float(static_cast<uint32_t>(value.bits) << 16); }
inline float to_float(f16_t value) {
    const uint32_t sign = (value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;
    if (rest >= 0x7c00u) return as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // As a float32 whose exponent is too small by 112; the product mends it, for subnormal numbers too.
    return as_float(as_bits(as_float(rest << 13) * as_float(239u << 23)) | sign);
}

template <class T>
T from_float(float value);

template <>
inline float from_float<float>(float value) {
    return value;
}

// To nearest, ties to even.
template <>
inline bf16_t from_float<bf16_t>(float value) {
    const uint32_t bits = as_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

template <>
inline f16_t from_float<f16_t>(float value) {
    const uint32_t bits = as_bits(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
    if (rest >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
    if (rest < 0x38800000u) {  // subnormal: the addition rounds to multiples of 2^-24
        return {static_cast<uint16_t>(sign | (as_bits(as_float(rest) + 0.5f) - 0x3f000000u))};
    }
    return {static_cast<uint16_t>(sign | ((rest + 0xfffu + (rest >> 13 & 1u) - 0x38000000u) >> 13))};
}

}  // namespace jf
