// Plain weights into tiles. No arithmetic, so that one version serves every level.
#include <cstring>

#include "api.h"
#include "pool.h"
#include "weight.h"

namespace jf {
namespace {

// One tile: elements of type T, of which kStep of a row lie together (a bfloat16 pair).
template <class T, int kStep>
void pack_tile(const T* rows, int64_t stride, int64_t count, int64_t columns, T* out) {
    constexpr int64_t kChunk = 512;  // columns at a time, so that sixteen rows of them stay in the first cache
    const int64_t steps = (columns + kStep - 1) / kStep;
    if (count < kTile || steps * kStep != columns) std::memset(out, 0, static_cast<size_t>(steps * kStep * kTile) * sizeof(T));
    for (int64_t start = 0; start < columns; start += kChunk) {
        const int64_t stop = start + kChunk < columns ? start + kChunk : columns;
        for (int64_t row = 0; row < count; ++row) {
            const T* from = rows + row * stride;
            T* to = out + row * kStep;
            int64_t k = start;
            for (; k + kStep <= stop; k += kStep) std::memcpy(to + k * kTile, from + k, kStep * sizeof(T));
            for (; k < stop; ++k) to[k / kStep * kStep * kTile + k % kStep] = from[k];
        }
    }
}

template <class T, int kStep>
void pack(const void* plain, int64_t rows, int64_t columns, int64_t stride, void* out, int threads) {
    auto& pool = Pool::shared(threads);
    const int64_t tiles = tiles_of(rows), tile = (columns + kStep - 1) / kStep * kStep * kTile;
    pool.run([&](int thread) {
        for (int64_t t = tiles * thread / pool.size(); t < tiles * (thread + 1) / pool.size(); ++t) {
            const int64_t count = rows - t * kTile < kTile ? rows - t * kTile : kTile;
            pack_tile<T, kStep>(static_cast<const T*>(plain) + t * kTile * stride, stride, count, columns,
                                static_cast<T*>(out) + t * tile);
        }
    });
}

}  // namespace
}  // namespace jf

void jf_pack_dense(const void* plain, int32_t form, int64_t rows, int64_t columns, int64_t stride, void* out, int threads) {
    switch (form) {
        case jf::kF32: return jf::pack<uint32_t, 1>(plain, rows, columns, stride, out, threads);
        case jf::kBf16: return jf::pack<uint16_t, 2>(plain, rows, columns, stride, out, threads);
        case jf::kF16: return jf::pack<uint16_t, 1>(plain, rows, columns, stride, out, threads);
    }
}
