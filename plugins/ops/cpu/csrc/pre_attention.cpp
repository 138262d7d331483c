#include "api.h"
#include "attention_run.h"
#include "stages.h"

namespace jf {
namespace {

// Of one row: head `head` of q, k and v one behind the other, out of its place in the product into that of the result.
void leave_head(const PreCall& call, int64_t row, int64_t head, const float* product) {
    const PreBlock& block = call.block;
    const auto scalar = static_cast<Scalar>(block.scalar);
    const auto& kernels = jf::kernels().rows;
    const int64_t size = block.head_size, keys = block.heads + block.kv_heads;
    const bool is_value = head >= keys;
    const int64_t width = is_value ? block.v_head_size : size;
    const int64_t from = is_value ? keys * size + (head - keys) * width : head * size;
    void* out = head < block.heads ? at(call.q, (row * block.heads + head) * size, scalar)
                : is_value         ? at(call.v, (row * block.kv_heads + head - keys) * width, scalar)
                                   : at(call.k, (row * block.kv_heads + head - block.heads) * size, scalar);
    kernels.finish(product + from, block.qkv_bias == nullptr ? nullptr : at(block.qkv_bias, from, scalar), out, scalar, width);
    if (is_value) {
        if (call.slots != nullptr) call.slots->put_value(row, head - keys, out);
        return;
    }
    const Norm& norm = head < block.heads ? block.q_norm : block.k_norm;
    if (norm.weight != nullptr) kernels.norm(out, nullptr, nullptr, out, scalar, norm, size);
    if (call.cos != nullptr) kernels.rotate(out, call.cos + row * call.angles, call.sin + row * call.angles, scalar, call.half);
    if (call.slots != nullptr && head >= block.heads) call.slots->put_key(row, head - block.heads, out);
}

// Memory that the members of a team have in common: the product float32 [n, stride], and the normed rows.
struct Common {
    int64_t stride, product, normed, bytes;

    Common(const PreBlock& block, int64_t n) : stride(tiles_of(block.qkv->rows) * kTile) {
        Layout layout;
        product = layout.add(n * stride * 4);
        normed = layout.add(n * block.qkv->columns * bytes_of(static_cast<Scalar>(block.scalar)));
        bytes = layout.size();
    }
};

}  // namespace

int64_t shared_bytes(const PreBlock& block, int64_t n) { return Common(block, n).bytes; }

void before_attention(const PreCall& call, const Team& team, int64_t first, int64_t n, uint8_t* shared) {
    const PreBlock& block = call.block;
    const Weight& weight = *block.qkv;
    const auto scalar = static_cast<Scalar>(block.scalar);
    const int64_t hidden = weight.columns, tiles = tiles_of(weight.rows);
    const Common common(block, n);
    const int64_t stride = common.stride;
    const bool each = each_norms_all(team, n), sums = !each || call.own || team.rank == 0;

    Layout alone;
    const int64_t own_normed = alone.add(each ? n * hidden * bytes_of(scalar) : 0);
    const int64_t own_sum = alone.add(each ? hidden * bytes_of(scalar) : 0);
    const int64_t room = alone.add(prepared_bytes(weight, n, scalar));
    const int64_t scratch = alone.add(kernels_for(weight).scratch_bytes(hidden, n));
    uint8_t* own = Arena::own().reserve(alone.size());

    auto* product = reinterpret_cast<float*>(shared + common.product);
    uint8_t* normed = each ? own + own_normed : shared + common.normed;
    const Span rows = each ? Span{0, n} : team.share(n);
    for (int64_t i = rows.first; i < rows.last; ++i) {
        const int64_t from = (first + i) * hidden;
        void* sum = !sums ? own + own_sum : call.sum == nullptr ? nullptr : at(call.sum, from, scalar);
        kernels().rows.norm(at(call.x, from, scalar), call.residual == nullptr ? nullptr : at(call.residual, from, scalar), sum,
                            at(normed, i * hidden, scalar), scalar, block.norm, hidden);
    }
    if (!each) team.barrier();

    const Rows ready = prepared(weight, normed, scalar, n, hidden, own + room);
    const Span mine = team.share(tiles);
    const int64_t panel = panel_of(n);
    for (int64_t tile = mine.first; tile < mine.last; tile += panel) {
        multiply(weight, ready, n, {tile, std::min(tile + panel, mine.last)}, product + tile * kTile, stride, own + scratch);
    }
    team.barrier();

    const int64_t heads = block.heads + 2 * block.kv_heads;
    const Span pieces = team.share(n * heads);
    for (int64_t piece = pieces.first; piece < pieces.last; ++piece) {
        leave_head(call, first + piece / heads, piece % heads, product + piece / heads * stride);
    }
}

}  // namespace jf

void jf_pre_attention(const jf::PreBlock* block, int64_t n, const void* x, const void* residual, void* sum, const float* cos,
                      const float* sin, int64_t angles, int64_t half, void* q, void* k, void* v, int threads) {
    const jf::PreCall call{*block, x, residual, sum, cos, sin, angles, half, q, k, v};
    const auto bytes = [&](int64_t count) { return jf::shared_bytes(*block, count); };
    jf::over_rows(jf::Pool::shared(threads), n, bytes, [&](const jf::Team& team, int64_t first, int64_t count, uint8_t* shared) {
        jf::before_attention(call, team, first, count, shared);
    });
}
