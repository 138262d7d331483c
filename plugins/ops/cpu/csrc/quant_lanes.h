// What the quantised kernels are written in: sixteen lanes, one for each row of a tile, at the level being compiled.
//
// add_products adds the products of a quad of codes with four activations to two sums. The activations are two words. With VNNI
// these are the upper and the lower half (in steps of 128) of each activation, one byte a column; each has a sum of its own. Else
// they are 16-bit numbers, columns 0 and 2 in the first word, 1 and 3 in the second. `joined` makes one sum of the two.
#pragma once

#include "quant.h"
#include "vec.h"

#if defined(__AVX512F__)
#include "quant_avx512.h"
#elif defined(__AVX2__)
#include "quant_avx2.h"
#else
#include "quant_portable.h"
#endif

namespace jf::JF_NAMESPACE {

inline V halves(const uint8_t* p) { return load(reinterpret_cast<const f16_t*>(p)); }

// Codes of a quad of a group of 32 columns: 0 <= quad < kQuads. `block` is a tile's block.
template <class Q, int quad>
inline Codes codes_of(const uint8_t* block, int group) {
    if constexpr (std::is_same_v<Q, Q8_0> || std::is_same_v<Q, Int8>) {
        return load_codes(block + Q::kCodes + (group * kQuads + quad) * kQuad);
    } else if constexpr (std::is_same_v<Q, Q6K>) {
        const uint8_t* at = block + group * Q6K::kGroupBytes;
        const Codes pair = load_codes(at + quad / 2 * kQuad), upper = load_codes(at + Q6K::kHigh + quad / 4 * kQuad);
        return join(quad % 2 ? high_half(pair) : low_half(pair), upper_bits<quad % 4>(upper));
    } else {
        const Codes pair = load_codes(block + Q::kCodes + (group * kQuads + quad) / 2 * kQuad);
        return quad % 2 ? high_half(pair) : low_half(pair);
    }
}

// Scales of a group (of its half `part`, for those with two), and minima where a form has them.
template <class Q>
constexpr bool kHasMinima = std::is_same_v<Q, Q4_1> || std::is_same_v<Q, Q4K>;
template <class Q>
constexpr int kParts = std::is_same_v<Q, Q6K> ? 2 : 1;

template <class Q>
inline V scales_of(const uint8_t* block, int group, int part) {
    if constexpr (std::is_same_v<Q, Q4K>) {
        return halves(block + Q4K::kD) * bytes(block + Q4K::kScales + kTile * group);
    } else if constexpr (std::is_same_v<Q, Q6K>) {
        return halves(block + Q6K::kD) * signed_bytes(block + Q6K::kScales + kTile * (2 * group + part));
    } else if constexpr (std::is_same_v<Q, Int8>) {
        return set1(1.0f);  // the tile's come at the end
    } else {
        return halves(block + Q::kScales + 32 * group);
    }
}

template <class Q>
inline V minima_of(const uint8_t* block, int group) {
    if constexpr (std::is_same_v<Q, Q4_1>) return halves(block + Q4_1::kMinima + 32 * group);
    if constexpr (std::is_same_v<Q, Q4K>) {
        return halves(block + Q4K::kD + 32) * bytes(block + Q4K::kMinima + kTile * group) * set1(-1.0f);
    }
    return set1(0.0f);
}

}  // namespace jf::JF_NAMESPACE
