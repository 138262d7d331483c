#include "api.h"
#include "rows.h"
#include "team.h"

namespace jf {
namespace {

struct Call {
    const Weight& weight;
    Scalar scalar;
    int64_t stride;
    const void* bias;
    Scalar out_scalar;
};

void some_rows(const Call& call, const Team& team, int64_t n, const void* x, void* out) {
    const Weight& weight = call.weight;
    const Span tiles = team.share(tiles_of(weight.rows));
    const int64_t panel = panel_of(n);
    Layout layout;
    const int64_t room = layout.add(prepared_bytes(weight, n, call.scalar));
    const int64_t sums = layout.add(n * panel * kTile * 4);
    const int64_t scratch = layout.add(kernels_for(weight).scratch_bytes(weight.columns, n));
    uint8_t* base = Arena::own().reserve(layout.size());
    // Each member prepares all rows for itself: they are few, or it is alone.
    const Rows rows = prepared(weight, x, call.scalar, n, call.stride, base + room);
    auto* product = reinterpret_cast<float*>(base + sums);
    const bool direct = call.bias == nullptr && call.out_scalar == kFloat32;
    for (int64_t tile = tiles.first; tile < tiles.last; tile += panel) {
        const int64_t last = std::min(tile + panel, tiles.last), first_row = tile * kTile;
        const int64_t width = std::min(last * kTile, weight.rows) - first_row;
        if (direct && width % kTile == 0) {
            multiply(weight, rows, n, {tile, last}, static_cast<float*>(out) + first_row, weight.rows, base + scratch);
            continue;
        }
        multiply(weight, rows, n, {tile, last}, product, panel * kTile, base + scratch);
        const void* bias = call.bias == nullptr ? nullptr : at(call.bias, first_row, call.out_scalar);
        for (int64_t i = 0; i < n; ++i) {
            kernels().rows.finish(product + i * panel * kTile, bias, at(out, i * weight.rows + first_row, call.out_scalar),
                                  call.out_scalar, width);
        }
    }
}

}  // namespace
}  // namespace jf

void jf_linear(const jf::Weight* weight, const void* x, int32_t scalar, int64_t n, int64_t stride, const void* bias, void* out,
               int32_t out_scalar, int threads) {
    const jf::Call call{*weight, static_cast<jf::Scalar>(scalar), stride, bias, static_cast<jf::Scalar>(out_scalar)};
    const auto nothing_shared = [](int64_t) { return int64_t{0}; };
    jf::over_rows(jf::Pool::shared(threads), n, nothing_shared, [&](const jf::Team& team, int64_t first, int64_t count, uint8_t*) {
        jf::some_rows(call, team, count, jf::at(x, first * stride, call.scalar),
                      jf::at(out, first * weight->rows, call.out_scalar));
    });
}
