// The innermost loops of dense products: some rows times some tiles, the sums in registers.
#pragma once

#include "vec.h"
#include "weight.h"

namespace jf::JF_NAMESPACE {

// How many sums fit into the registers: rows of a block over kWide tiles, and over one tile.
#if defined(__AVX512F__)
constexpr int kWide = 2, kWideRows = 12, kNarrowRows = 8;
#elif defined(__AVX2__)
constexpr int kWide = 1, kWideRows = 5, kNarrowRows = 5;
#else
constexpr int kWide = 1, kWideRows = 2, kNarrowRows = 2;
#endif

// Each step of these reads 16 rows of one tile and multiplies them with kStep elements of each activation row.
struct F32 {
    using X = float;
    static constexpr int kStep = 1, kBytes = 64;
    V weights;
    explicit F32(const uint8_t* at) : weights(load(reinterpret_cast<const float*>(at))) {}
    void add(const X* x, V& sum) const { sum = fma_(weights, set1(*x), sum); }
};

struct F16 {
    using X = float;
    static constexpr int kStep = 1, kBytes = 32;
    V weights;
    explicit F16(const uint8_t* at) : weights(load(reinterpret_cast<const f16_t*>(at))) {}
    void add(const X* x, V& sum) const { sum = fma_(weights, set1(*x), sum); }
};

#if defined(__AVX512BF16__)
struct Bf16 {
    using X = bf16_t;
    static constexpr int kStep = 2, kBytes = 64;
    __m512bh weights;
    explicit Bf16(const uint8_t* at) : weights(reinterpret_cast<__m512bh>(_mm512_loadu_si512(at))) {}
    void add(const X* x, V& sum) const {
        int32_t pair;
        std::memcpy(&pair, x, 4);
        sum.v = _mm512_dpbf16_ps(sum.v, weights, reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)));
    }
};
#else
struct Bf16 {
    using X = float;
    static constexpr int kStep = 2, kBytes = 64;
    V even, odd;
    explicit Bf16(const uint8_t* at) { load_pairs(reinterpret_cast<const bf16_t*>(at), even, odd); }
    void add(const X* x, V& sum) const { sum = fma_(odd, set1(x[1]), fma_(even, set1(x[0]), sum)); }
};
#endif

// With one to three rows the processor runs far enough ahead by itself, and being told costs a little. With more it does not:
// products and memory would take turns. So the stream is fetched into the second cache this far ahead; with wide blocks, which
// take every tile once for each block of rows, the next pair of tiles is.
constexpr int kRowsAhead = 3;
constexpr int64_t kBytesAhead = 16384;
// From so many rows on the same tiles serve many blocks, memory has time enough, and being told costs 3 % again.
constexpr int64_t kRowsWithTime = 96;


// out[r * ldo + 16 t ...] = rows r < R times tiles t < T. U: sums that are kept of each, so that they do not wait for each other.
// Ahead: whether wide blocks fetch the next tiles.
template <class W, int R, int T, int U, bool Ahead>
void product(const uint8_t* tiles, int64_t tile_bytes, const typename W::X* x, int64_t ldx, int64_t steps, float* out, int64_t ldo) {
    V sums[U][R][T];
#pragma GCC unroll 64
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 64
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 64
            for (int t = 0; t < T; ++t) sums[u][r][t] = set1(0.0f);
    const auto step = [&](int64_t s, V(&some)[R][T]) __attribute__((always_inline)) {
        if constexpr (T == 1) {
            if constexpr (R > kRowsAhead) __builtin_prefetch(tiles + s * W::kBytes + kBytesAhead, 0, 2);
            const W weights(tiles + s * W::kBytes);
#pragma GCC unroll 64
            for (int r = 0; r < R; ++r) weights.add(x + r * ldx + s * W::kStep, some[r][0]);
        } else {
            static_assert(T == 2);
            if constexpr (Ahead) {
                __builtin_prefetch(tiles + s * W::kBytes + 2 * tile_bytes, 0, 2);
                __builtin_prefetch(tiles + s * W::kBytes + 3 * tile_bytes, 0, 2);
            }
            const W first(tiles + s * W::kBytes), second(tiles + tile_bytes + s * W::kBytes);
#pragma GCC unroll 64
            for (int r = 0; r < R; ++r) {
                first.add(x + r * ldx + s * W::kStep, some[r][0]);
                second.add(x + r * ldx + s * W::kStep, some[r][1]);
            }
        }
    };
    int64_t s = 0;
    for (; s + U <= steps; s += U) {
#pragma GCC unroll 64
        for (int u = 0; u < U; ++u) step(s + u, sums[u]);
    }
    for (; s < steps; ++s) step(s, sums[0]);
#pragma GCC unroll 64
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 64
        for (int t = 0; t < T; ++t) {
            V total = sums[0][r][t];
            for (int u = 1; u < U; ++u) total = total + sums[u][r][t];
            store(out + r * ldo + t * kTile, total);
        }
}

}  // namespace jf::JF_NAMESPACE
