// Packing: from GGUF blocks, or from plain weights, into tiles. Pure data movement; it runs once, at start.
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "api.h"
#include "pool.h"
#include "quant.h"
#include "scalar.h"

namespace jf {
namespace {

// A block as it lies in a GGUF file. `expand` writes its codes, one a byte, and `scales` puts those of one row into a tile's block.
template <class Q>
struct Source;

void half(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); }

// Two groups of a tile's block come from two blocks of the file.
struct Group32 {
    static constexpr int kElements = 32;
};

void nibbles(const uint8_t* packed, int n, uint8_t* codes) {
    for (int i = 0; i < n; ++i) {
        codes[i] = packed[i] & 15;
        codes[n + i] = packed[i] >> 4;
    }
}

template <>
struct Source<Q8_0> : Group32 {
    static constexpr int kBytes = 34;
    static void expand(const uint8_t* block, uint8_t* codes) {
        for (int i = 0; i < 32; ++i) codes[i] = block[2 + i] ^ 128;  // as q + 128
    }
    static void scales(const uint8_t* block, int part, int row, uint8_t* to) {
        half(to + Q8_0::kScales + 32 * part + 2 * row, block);
    }
};

template <>
struct Source<Q4_0> : Group32 {
    static constexpr int kBytes = 18;
    static void expand(const uint8_t* block, uint8_t* codes) { nibbles(block + 2, 16, codes); }
    static void scales(const uint8_t* block, int part, int row, uint8_t* to) {
        half(to + Q4_0::kScales + 32 * part + 2 * row, block);
    }
};

template <>
struct Source<Q4_1> : Group32 {
    static constexpr int kBytes = 20;
    static void expand(const uint8_t* block, uint8_t* codes) { nibbles(block + 4, 16, codes); }
    static void scales(const uint8_t* block, int part, int row, uint8_t* to) {
        half(to + Q4_1::kScales + 32 * part + 2 * row, block);
        half(to + Q4_1::kMinima + 32 * part + 2 * row, block + 2);
    }
};

template <>
struct Source<Q4K> {
    static constexpr int kElements = 256, kBytes = 144;
    static void expand(const uint8_t* block, uint8_t* codes) {
        for (int pair = 0; pair < 4; ++pair) nibbles(block + 16 + 32 * pair, 32, codes + 64 * pair);
    }
    static void scales(const uint8_t* block, int, int row, uint8_t* to) {
        half(to + Q4K::kD + 2 * row, block);
        half(to + Q4K::kD + 32 + 2 * row, block + 2);
        const uint8_t* packed = block + 4;  // 6-bit scales and minima in 12 bytes
        for (int i = 0; i < 4; ++i) {
            const uint8_t low = packed[i], middle = packed[4 + i], high = packed[8 + i];
            uint8_t* scale = to + Q4K::kScales + kTile * i + row;
            uint8_t* minimum = to + Q4K::kMinima + kTile * i + row;
            scale[0] = low & 63;
            minimum[0] = middle & 63;
            scale[4 * kTile] = (high & 15) | (low >> 6 << 4);
            minimum[4 * kTile] = (high >> 4) | (middle >> 6 << 4);
        }
    }
};

template <>
struct Source<Q6K> {
    static constexpr int kElements = 256, kBytes = 210;
    static void expand(const uint8_t* block, uint8_t* codes) {
        for (int part = 0; part < 2; ++part) nibbles(block + 64 * part, 64, codes + 128 * part);
        for (int part = 0; part < 2; ++part) {
            for (int i = 0; i < 128; ++i) {
                codes[128 * part + i] |= (block[128 + 32 * part + i % 32] >> (i / 32 * 2) & 3) << 4;
            }
        }
    }
    static void scales(const uint8_t* block, int, int row, uint8_t* to) {
        for (int i = 0; i < 16; ++i) to[Q6K::kScales + kTile * i + row] = block[192 + i];
        half(to + Q6K::kD + 2 * row, block + 208);
    }
};

// Codes of n columns of one row -> a tile's block, whose code bytes are zero before.
template <class Q>
void place(const uint8_t* codes, int first, int n, int row, uint8_t* to) {
    for (int k = first; k < first + n; ++k) {
        const uint8_t code = codes[k - first];
        const int quad = k / 4, place = row * 4 + k % 4;
        if constexpr (std::is_same_v<Q, Q8_0> || std::is_same_v<Q, Int8>) {
            to[Q::kCodes + quad * kQuad + place] = code;
        } else if constexpr (std::is_same_v<Q, Q6K>) {
            uint8_t* group = to + quad / kQuads * Q6K::kGroupBytes;
            const int within = quad % kQuads;
            group[within / 2 * kQuad + place] |= (code & 15) << (within % 2 * 4);
            group[Q6K::kHigh + within / 4 * kQuad + place] |= code >> 4 << (within % 4 * 2);
        } else {
            to[Q::kCodes + quad / 2 * kQuad + place] |= code << (quad % 2 * 4);
        }
    }
}

template <class Q>
void pack_row(const uint8_t* from, int64_t columns, int row, uint8_t* tile) {
    using From = Source<Q>;
    uint8_t codes[From::kElements];
    for (int64_t first = 0; first < columns; first += From::kElements, from += From::kBytes) {
        uint8_t* to = tile + first / Q::kColumns * Q::kBytes;
        const int within = static_cast<int>(first % Q::kColumns);
        From::expand(from, codes);
        place<Q>(codes, within, From::kElements, row, to);
        From::scales(from, within / From::kElements, row, to);
    }
}

float plain_value(int32_t form, const void* data, int64_t i) {
    if (form == kF32) return static_cast<const float*>(data)[i];
    if (form == kBf16) return to_float(static_cast<const bf16_t*>(data)[i]);
    return to_float(static_cast<const f16_t*>(data)[i]);
}

// Symmetric, one scale a row. False for a row that holds a NaN or an infinity.
bool quantize_row(int32_t form, const void* data, int64_t start, int64_t columns, int row, uint8_t* tile, float* values) {
    float largest = 0, sound = 0;
    for (int64_t k = 0; k < columns; ++k) {
        values[k] = plain_value(form, data, start + k);
        largest = std::fmax(largest, std::fabs(values[k]));
        sound += values[k] * 0.0f;
    }
    if (sound != 0 || largest == INFINITY) return false;
    const float scale = largest / 127;
    const float inverse = scale > 0 ? 1 / scale : 0;
    reinterpret_cast<float*>(tile)[row] = scale;
    uint8_t codes[Int8::kColumns];
    for (int64_t first = 0; first < columns; first += Int8::kColumns) {
        const int n = static_cast<int>(columns - first < Int8::kColumns ? columns - first : Int8::kColumns);
        for (int k = 0; k < n; ++k) {
            const float code = std::nearbyint(values[first + k] * inverse);
            codes[k] = static_cast<uint8_t>(static_cast<int>(code < -127 ? -127 : code > 127 ? 127 : code) + 128);
        }
        place<Int8>(codes, 0, n, row, tile + Int8::kHeader + first / Int8::kColumns * Int8::kBytes);
    }
    return true;
}

// Calls f(tile) for every tile, spread over the pool.
template <class F>
void for_tiles(int64_t rows, int threads, F&& f) {
    const int64_t tiles = tiles_of(rows);
    Pool& pool = Pool::shared(threads);
    pool.run([&](int thread) {
        for (int64_t tile = thread; tile < tiles; tile += pool.size()) f(tile);
    });
}

}  // namespace
}  // namespace jf

int64_t jf_quantized_bytes(int32_t form, int64_t rows, int64_t columns) {
    return jf::with_form(form, [&](auto q) { return jf::tiles_of(rows) * jf::tile_bytes<decltype(q)>(columns); });
}

void jf_pack_quantized(const uint8_t* blocks, int32_t form, int64_t rows, int64_t columns, int64_t stride, uint8_t* out,
                       int threads) {
    jf::with_form(form, [&](auto q) {
        using Q = decltype(q);
        if constexpr (!std::is_same_v<Q, jf::Int8>) {
            const int64_t bytes = jf::tile_bytes<Q>(columns);
            jf::for_tiles(rows, threads, [&](int64_t tile) {
                std::memset(out + tile * bytes, 0, bytes);
                for (int row = 0; row < jf::kTile && tile * jf::kTile + row < rows; ++row) {
                    jf::pack_row<Q>(blocks + (tile * jf::kTile + row) * stride, columns, row, out + tile * bytes);
                }
            });
        }
    });
}

int64_t jf_pack_int8(const void* plain, int32_t form, int64_t rows, int64_t columns, int64_t stride, uint8_t* out, int threads) {
    const int64_t bytes = jf::tile_bytes<jf::Int8>(columns);
    std::atomic<int64_t> bad{-1};
    jf::for_tiles(rows, threads, [&](int64_t tile) {
        uint8_t* to = out + tile * bytes;
        std::memset(to, 0, jf::Int8::kHeader);
        std::memset(to + jf::Int8::kHeader, jf::Int8::kZero, bytes - jf::Int8::kHeader);
        std::vector<float> values(columns);
        for (int i = 0; i < jf::kTile && tile * jf::kTile + i < rows; ++i) {
            const int64_t row = tile * jf::kTile + i;
            if (!jf::quantize_row(form, plain, row * stride, columns, i, to, values.data())) bad = row;
        }
    });
    return bad;
}
