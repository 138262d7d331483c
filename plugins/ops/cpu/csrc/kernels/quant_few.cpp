// Products of few rows of activations with quantised codes, integer by integer. With one row they run as fast as memory.
#include <type_traits>

#include "quant_activations.h"
#include "quant_kernels.h"

namespace jf::JF_NAMESPACE {
namespace {

template <class Q, int N, int quad, int last>
inline void add_quads(const uint8_t* block, int group, const int32_t* words, Ints* first, Ints* second) {
    if constexpr (quad < last) {
        const Codes codes = codes_of<Q, quad>(block, group);
#pragma GCC unroll 8
        for (int row = 0; row < N; ++row) {
            add_products(first[row], second[row], codes, words + 2 * kQuads * row + 2 * quad);
        }
        add_quads<Q, N, quad + 1, last>(block, group, words, first, second);
    }
}

// The part `part` of one group, added to `sums`.
template <class Q, int N, int part>
inline void add_part(const uint8_t* block, int group, const int32_t* words, const GroupRecord* records, V* sums) {
    constexpr int kEach = kQuads / kParts<Q>;
    Ints first[N], second[N];
#pragma GCC unroll 8
    for (int row = 0; row < N; ++row) {
        const GroupRecord& record = records[row];
        first[row] = spread(0);
        second[row] = spread(-Q::kZero * (kParts<Q> == 1 ? record.total : part ? record.total - record.first : record.first));
    }
    add_quads<Q, N, part * kEach, (part + 1) * kEach>(block, group, words, first, second);
    const V scales = scales_of<Q>(block, group, part);
#pragma GCC unroll 8
    for (int row = 0; row < N; ++row) {
        const V total = to_floats(joined(first[row], second[row])), scale = set1(records[row].scale);
        if constexpr (std::is_same_v<Q, Int8>) {
            sums[row] = fma_(total, scale, sums[row]);
        } else {
            sums[row] = fma_(total * scale, scales, sums[row]);
        }
    }
}

// One tile with one bundle of rows, of which n are there.
template <class Q, int N>
void multiply_tile(const uint8_t* tile, const uint8_t* prepared, int64_t blocks, float* out, int64_t ldo, int64_t n) {
    constexpr int kGroups = Q::kColumns / kGroup;
    V sums[N];
#pragma GCC unroll 8
    for (int row = 0; row < N; ++row) sums[row] = set1(0.0f);
    const uint8_t* at = tile + header_bytes<Q>();
    for (int64_t block = 0; block < blocks; ++block, at += Q::kBytes) {
        if constexpr (std::is_same_v<Q, Q4_0> || std::is_same_v<Q, Q4_1>) {
            // Five lines some 4 KB ahead, once each 2 KB: from there the processor reads on by itself, a fifth faster.
            constexpr int64_t kEvery = 2048 / Q::kBytes;
            if (block % kEvery == 0) {
                for (int i = 0; i < 5; ++i) __builtin_prefetch(at + 2 * kEvery * Q::kBytes + 64 * i);
            }
        }
#pragma GCC unroll 2
        for (int group = 0; group < kGroups; ++group, prepared += group_bytes(N)) {
            const auto* words = reinterpret_cast<const int32_t*>(prepared);
            const auto* records = reinterpret_cast<const GroupRecord*>(prepared + N * kQuads * 8);
            add_part<Q, N, 0>(at, group, words, records, sums);
            if constexpr (kParts<Q> == 2) add_part<Q, N, 1>(at, group, words, records, sums);
            if constexpr (kHasMinima<Q>) {
                const V minima = minima_of<Q>(at, group);
#pragma GCC unroll 8
                for (int row = 0; row < N; ++row) sums[row] = fma_(minima, set1(records[row].sum), sums[row]);
            }
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < N; ++row) {
        if constexpr (std::is_same_v<Q, Int8>) sums[row] = sums[row] * load(reinterpret_cast<const float*>(tile));
        if (row < n) store(out + row * ldo, sums[row]);
    }
}

template <class Q, int N>
void multiply_tiles(const Weight& weight, const uint8_t* prepared, int64_t n, int64_t first, int64_t last, float* out,
                    int64_t ldo) {
    const int64_t bytes = tile_bytes<Q>(weight.columns);
    for (int64_t tile = first; tile < last; ++tile, out += kTile) {
        multiply_tile<Q, N>(weight.data + tile * bytes, prepared, blocks_of<Q>(weight.columns), out, ldo, n);
    }
}

template <class Q>
void multiply_of(const Weight& weight, const uint8_t* at, int64_t n, int64_t first, int64_t last, float* out, int64_t ldo) {
    for (int bundle; n > 0; n -= bundle, out += bundle * ldo) {
        bundle = bundle_of(n);
        switch (bundle) {
#if defined(__AVX512F__)
            case 8: multiply_tiles<Q, 8>(weight, at, n, first, last, out, ldo); break;
            case 6: multiply_tiles<Q, 6>(weight, at, n, first, last, out, ldo); break;
            case 4: multiply_tiles<Q, 4>(weight, at, n, first, last, out, ldo); break;
            case 3: multiply_tiles<Q, 3>(weight, at, n, first, last, out, ldo); break;
#endif
#if defined(__AVX2__)
            case 2: multiply_tiles<Q, 2>(weight, at, n, first, last, out, ldo); break;
#endif
            default: multiply_tiles<Q, 1>(weight, at, n, first, last, out, ldo);
        }
        at += groups_of(weight.columns) * group_bytes(bundle);
    }
}

}  // namespace

int64_t few_bytes(int64_t columns, int64_t n) { return few_rows_bytes(columns, n); }

void prepare_few(const void* x, Scalar scalar, int64_t n, int64_t ldx, int64_t columns, void* prepared) {
    auto* to = static_cast<uint8_t*>(prepared);
    switch (scalar) {
        case kFloat32: return prepare_few_rows(static_cast<const float*>(x), n, ldx, columns, to);
        case kBfloat16: return prepare_few_rows(static_cast<const bf16_t*>(x), n, ldx, columns, to);
        case kFloat16: return prepare_few_rows(static_cast<const f16_t*>(x), n, ldx, columns, to);
    }
}

void multiply_few(const Weight& weight, const void* prepared, int64_t n, int64_t first, int64_t last, float* out, int64_t ldo) {
    with_form(weight.form, [&](auto q) {
        multiply_of<decltype(q)>(weight, static_cast<const uint8_t*>(prepared), n, first, last, out, ldo);
    });
}

}  // namespace jf::JF_NAMESPACE
