// The quantised forms: where codes and scales lie. Every value is scale * code + minimum, code unsigned.
//
// A tile holds kTile output rows. Its columns come in blocks, each with codes and scales in about the order in which they are read:
// one that goes back and forth within a block costs a fifth of the memory's speed. Codes come in quads: four
// columns of one row are adjacent, and those of the tile's rows follow one another, so that a quad is 64 bytes of 8-bit codes
// (what vpdpbusd takes). 4-bit codes: one byte holds the same place of two successive quads, the first in its low half. Columns
// are padded to whole blocks with scales of zero.
#pragma once

#include <cstdint>
#include <type_traits>

#include "weight.h"

namespace jf {

// Weight::flags of a quantised weight is the Scalar of the run. In float32 the numbers are to be those of the decoded weights,
// so that activations are never rounded; in the others few rows are multiplied code by code.

constexpr int kGroup = 32;   // columns under one scale of the activations, and of most weights
constexpr int kQuad = 64;    // bytes of a quad of 8-bit codes
constexpr int kQuads = 8;    // in a group
constexpr int kMostColumns = 256;  // of any form's block

// Two groups: float16 scales [2][16], then codes.
struct Q8_0 {
    static constexpr int kColumns = 64, kScales = 0, kCodes = 64, kBytes = 1088, kZero = 128;
};
// Two groups: float16 scales [2][16], then codes.
struct Q4_0 {
    static constexpr int kColumns = 64, kScales = 0, kCodes = 64, kBytes = 576, kZero = 8;
};
// One group: float16 scales [16], float16 minima [16], then codes.
struct Q4_1 {
    static constexpr int kColumns = 32, kScales = 0, kMinima = 32, kCodes = 64, kBytes = 320, kZero = 0;
};
// Eight groups: codes, then float16 d [16] and dmin [16], then uint8 scales [8][16] and minima [8][16]; the scale of a group is
// d times its own, the minimum -dmin times its own.
struct Q4K {
    static constexpr int kColumns = 256, kCodes = 0, kD = 2048, kScales = 2112, kMinima = 2240, kBytes = 2368, kZero = 0;
};
// Sixteen groups of 16 columns, two of which make a group of activations: for each of the latter the low halves of the codes as
// 4-bit ones, then their upper two bits (a byte holds those of four successive quads, the first in its lowest bits). Then int8
// scales [16][16], then float16 d [16].
struct Q6K {
    static constexpr int kColumns = 256, kGroupBytes = 384, kHigh = 256, kScales = 3072, kD = 3328, kBytes = 3392, kZero = 32;
};
// A tile begins with float32 scales [16]; blocks hold codes alone.
struct Int8 {
    static constexpr int kColumns = 64, kHeader = 64, kCodes = 0, kBytes = 1024, kZero = 128;
};

// Calls f with the type of a quantised form.
template <class F>
auto with_form(int32_t form, F&& f) {
    switch (form) {
        case kQ8_0: return f(Q8_0{});
        case kQ4_0: return f(Q4_0{});
        case kQ4_1: return f(Q4_1{});
        case kQ4K: return f(Q4K{});
        case kQ6K: return f(Q6K{});
        default: return f(Int8{});
    }
}

template <class Q>
constexpr int header_bytes() {
    if constexpr (std::is_same_v<Q, Int8>) return Int8::kHeader;
    return 0;
}

template <class Q>
constexpr int64_t blocks_of(int64_t columns) {
    return (columns + Q::kColumns - 1) / Q::kColumns;
}

template <class Q>
constexpr int64_t tile_bytes(int64_t columns) {
    return header_bytes<Q>() + blocks_of<Q>(columns) * Q::kBytes;
}

}  // namespace jf
