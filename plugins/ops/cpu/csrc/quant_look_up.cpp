// Rows out of a quantised table, as an embedding needs them: bit for bit what decoding in float32, step by step, gives.
#include "api.h"
#include "dispatch.h"
#include "pool.h"
#include "quant.h"
#include "scalar.h"

namespace jf {
namespace {

constexpr int64_t kWorthWaking = 8192;  // elements from which on other threads help

float half_at(const uint8_t* at) {
    f16_t half;
    std::memcpy(&half, at, 2);
    return to_float(half);
}

template <class Q>
int code_at(const uint8_t* block, int column, int row) {
    const int quad = column / 4, place = row * 4 + column % 4;
    if constexpr (std::is_same_v<Q, Q8_0> || std::is_same_v<Q, Int8>) {
        return block[Q::kCodes + quad * kQuad + place];
    } else if constexpr (std::is_same_v<Q, Q6K>) {
        const uint8_t* group = block + quad / kQuads * Q6K::kGroupBytes;
        const int within = quad % kQuads;
        const int low = group[within / 2 * kQuad + place] >> within % 2 * 4 & 15;
        return low | (group[Q6K::kHigh + within / 4 * kQuad + place] >> within % 4 * 2 & 3) << 4;
    } else {
        return block[Q::kCodes + quad / 2 * kQuad + place] >> quad % 2 * 4 & 15;
    }
}

// Products are rounded before they are added, as they are where the codes are decoded without this library.
template <class Q>
__attribute__((optimize("fp-contract=off"))) float value_at(const uint8_t* tile, const uint8_t* block, int column, int row) {
    const int code = code_at<Q>(block, column, row);
    if constexpr (std::is_same_v<Q, Int8>) return (code - Int8::kZero) * reinterpret_cast<const float*>(tile)[row];
    if constexpr (std::is_same_v<Q, Q8_0> || std::is_same_v<Q, Q4_0>) {
        return (code - Q::kZero) * half_at(block + Q::kScales + column / kGroup * 32 + 2 * row);
    }
    if constexpr (std::is_same_v<Q, Q4_1>) {
        const int at = column / kGroup * 32 + 2 * row;
        const float product = code * half_at(block + Q4_1::kScales + at);
        return product + half_at(block + Q4_1::kMinima + at);
    }
    if constexpr (std::is_same_v<Q, Q4K>) {
        const int at = column / kGroup * kTile + row;
        const float scale = half_at(block + Q4K::kD + 2 * row) * block[Q4K::kScales + at];
        const float minimum = half_at(block + Q4K::kD + 32 + 2 * row) * block[Q4K::kMinima + at];
        const float product = scale * code;
        return product - minimum;
    }
    if constexpr (std::is_same_v<Q, Q6K>) {
        const auto scale = static_cast<int8_t>(block[Q6K::kScales + column / 16 * kTile + row]);
        return half_at(block + Q6K::kD + 2 * row) * scale * (code - Q6K::kZero);
    }
}

template <class Q, class T>
void row_of(const Weight& table, int64_t id, T* out) {
    const uint8_t* tile = table.data + id / kTile * tile_bytes<Q>(table.columns);
    const int row = static_cast<int>(id % kTile);
    for (int64_t k = 0; k < table.columns; ++k) {
        const uint8_t* block = tile + header_bytes<Q>() + k / Q::kColumns * Q::kBytes;
        out[k] = from_float<T>(value_at<Q>(tile, block, static_cast<int>(k % Q::kColumns), row));
    }
}

template <class T>
void rows_of(const Weight& table, const int64_t* ids, int64_t n, T* out, int threads) {
    with_form(table.form, [&](auto q) {
        const auto some = [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) row_of<decltype(q)>(table, ids[i], out + i * table.columns);
        };
        if (n == 1 || n * table.columns < kWorthWaking) return some(0, n);
        Pool& pool = Pool::shared(threads);
        pool.run([&](int thread) { some(n * thread / pool.size(), n * (thread + 1) / pool.size()); });
    });
}

}  // namespace
}  // namespace jf

void jf_look_up(const jf::Weight* table, const int64_t* ids, int64_t n, void* out, int32_t scalar, int threads) {
    switch (scalar) {
        case jf::kFloat32: return jf::rows_of(*table, ids, n, static_cast<float*>(out), threads);
        case jf::kBfloat16: return jf::rows_of(*table, ids, n, static_cast<jf::bf16_t*>(out), threads);
        case jf::kFloat16: return jf::rows_of(*table, ids, n, static_cast<jf::f16_t*>(out), threads);
    }
}
