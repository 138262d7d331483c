// Products with plain weights in tiles: float32 and float16 one input of sixteen rows after another, bfloat16 two by two, as
// vdpbf16ps takes them. Sums are float32.
#include "kernels/dense.h"

#include <array>
#include <type_traits>
#include <utility>

#include "dispatch.h"

namespace jf::JF_NAMESPACE {
namespace {

template <class W>
constexpr int64_t steps_of(int64_t columns) {
    return (columns + W::kStep - 1) / W::kStep;
}

template <class W>
constexpr Scalar kReads = std::is_same_v<typename W::X, float> ? kFloat32 : kBfloat16;

template <class W>
int64_t prepared_bytes(int64_t columns, int64_t n, Scalar scalar) {
    if (scalar == kReads<W> && columns % W::kStep == 0) return 0;
    return n * steps_of<W>(columns) * W::kStep * static_cast<int64_t>(sizeof(typename W::X));
}

template <class T, class X>
void convert(const T* x, int64_t n, int64_t ldx, int64_t columns, X* out, int64_t ldo) {
    for (int64_t i = 0; i < n; ++i) {
        const T* row = x + i * ldx;
        X* to = out + i * ldo;
        int64_t k = 0;
        for (; k + kLanes <= columns; k += kLanes) store(to + k, load(row + k));
        for (; k < columns; ++k) to[k] = from_float<X>(to_float(row[k]));
        for (; k < ldo; ++k) to[k] = X{};
    }
}

template <class W>
void prepare(const void* x, Scalar scalar, int64_t n, int64_t ldx, int64_t columns, void* prepared) {
    auto* out = static_cast<typename W::X*>(prepared);
    const int64_t ldo = steps_of<W>(columns) * W::kStep;
    switch (scalar) {
        case kFloat32: return convert(static_cast<const float*>(x), n, ldx, columns, out, ldo);
        case kBfloat16: return convert(static_cast<const bf16_t*>(x), n, ldx, columns, out, ldo);
        case kFloat16: return convert(static_cast<const f16_t*>(x), n, ldx, columns, out, ldo);
    }
}

int64_t scratch_bytes(int64_t, int64_t) { return 0; }

template <class W>
using Product = void (*)(const uint8_t*, int64_t, const typename W::X*, int64_t, int64_t, float*, int64_t);

// products[r - 1] takes r rows.
template <class W, int T, bool Ahead, int... R>
constexpr std::array<Product<W>, sizeof...(R)> products(std::integer_sequence<int, R...>) {
    return {product<W, R + 1, T, ((R + 1) * T > 8 ? 1 : (R + 1) * T >= 5 ? 2 : 4), Ahead>...};
}

template <class W>
constexpr auto kNarrow = products<W, 1, true>(std::make_integer_sequence<int, kNarrowRows>());
template <class W, bool Ahead>
constexpr auto kWidest = products<W, kWide, Ahead>(std::make_integer_sequence<int, kWideRows>());

// Rows in blocks of about equal size, `most` at the most.
template <class W, size_t N>
void rows(const std::array<Product<W>, N>& products, const uint8_t* tiles, int64_t tile_bytes, const typename W::X* x,
          int64_t ldx, int64_t n, int64_t steps, float* out, int64_t ldo) {
    const int64_t blocks = (n + static_cast<int64_t>(N) - 1) / static_cast<int64_t>(N);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = n * block / blocks, last = n * (block + 1) / blocks;
        products[last - first - 1](tiles, tile_bytes, x + first * ldx, ldx, steps, out + first * ldo, ldo);
    }
}

template <class W>
void multiply(const Weight& weight, const void* x, int64_t ldx, int64_t n, int64_t first, int64_t last, float* out,
              int64_t ldo, void*) {
    if (ldx == 0) ldx = steps_of<W>(weight.columns) * W::kStep;
    const auto* rows_of_x = static_cast<const typename W::X*>(x);
    const int64_t steps = steps_of<W>(weight.columns), tile_bytes = steps * W::kBytes;
    int64_t tile = first;
    // Few rows wait for memory, which is read fastest as one stream.
    if (n > kNarrowRows) {
        const auto& widest = n > kRowsWithTime ? kWidest<W, false> : kWidest<W, true>;
        for (; tile + kWide <= last; tile += kWide) {
            rows<W>(widest, weight.data + tile * tile_bytes, tile_bytes, rows_of_x, ldx, n, steps,
                    out + (tile - first) * kTile, ldo);
        }
    }
    for (; tile < last; ++tile) {
        rows<W>(kNarrow<W>, weight.data + tile * tile_bytes, tile_bytes, rows_of_x, ldx, n, steps,
                out + (tile - first) * kTile, ldo);
    }
}

template <class W>
constexpr LinearKernels kKernels = {prepared_bytes<W>, prepare<W>, scratch_bytes, multiply<W>};

}  // namespace

void register_dense(Kernels& kernels) {
    kernels.linear[kF32] = kKernels<F32>;
    kernels.linear[kBf16] = kKernels<Bf16>;
    kernels.linear[kF16] = kKernels<F16>;
}

}  // namespace jf::JF_NAMESPACE
