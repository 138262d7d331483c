#include "api.h"
#include "stages.h"

namespace jf {
namespace {

// Memory that the members of a team have in common.
struct Common {
    int64_t hidden_stride, inner_stride;
    bool aligned;  // tiles of gate and up hold the same inner features, so that a thread can multiply them with each other
    int64_t product;  // float32 [n, hidden_stride]: of o, later of down
    int64_t wide;  // float32 [n, inner_stride]: gate and up, where they are not aligned
    int64_t normed, inner;  // [n, hidden], [n, inner features]
    int64_t bytes;

    Common(const PostBlock& block, int64_t n) {
        const int64_t features = block.down->columns, element = bytes_of(static_cast<Scalar>(block.scalar));
        hidden_stride = tiles_of(block.o->rows) * kTile;
        inner_stride = tiles_of(block.gate_up->rows) * kTile;
        aligned = features % kTile == 0;
        Layout layout;
        product = layout.add(n * hidden_stride * 4);
        wide = layout.add(aligned ? 0 : n * inner_stride * 4);
        normed = layout.add(n * block.o->rows * element);
        inner = layout.add(n * features * element);
        bytes = layout.size();
    }
};

// One member's work on some rows, in the order of its steps.
struct Worker {
    const PostCall& call;
    const Team& team;
    const int64_t first, n;
    const Common common;
    uint8_t* const shared;
    uint8_t* own;
    int64_t own_normed, own_rows, room, scratch, panels;

    Worker(const PostCall& with, const Team& in, int64_t first_row, int64_t rows, uint8_t* memory)
        : call(with), team(in), first(first_row), n(rows), common(with.block, rows), shared(memory) {
        const PostBlock& block = call.block;
        const int64_t element = bytes_of(call.scalar());
        Layout layout;
        own_normed = layout.add(n * call.hidden() * element);
        own_rows = layout.add(2 * call.hidden() * element);
        int64_t most_room = 0, most_scratch = 0;
        for (const Weight* weight : {block.o, block.gate_up, block.down}) {
            most_room = std::max(most_room, prepared_bytes(*weight, n, call.scalar()));
            most_scratch = std::max(most_scratch, kernels_for(*weight).scratch_bytes(weight->columns, n));
        }
        room = layout.add(most_room);
        scratch = layout.add(most_scratch);
        panels = layout.add(2 * n * panel_of(n) * kTile * 4);
        own = Arena::own().reserve(layout.size());
    }

    float* product(int64_t row) const {
        return reinterpret_cast<float*>(shared + common.product) + row * common.hidden_stride;
    }
    const void* given(int64_t row, int64_t width) const { return at(call.in, (first + row) * width, call.scalar()); }
    void* taken(int64_t row) const { return at(call.out, (first + row) * call.hidden(), call.scalar()); }

    // This member's tiles of a weight, into rows of float32.
    void multiply_into(const Weight& weight, const void* x, float* out, int64_t stride) const {
        const Rows rows = prepared(weight, x, call.scalar(), n, weight.columns, own + room);
        const Span mine = team.share(tiles_of(weight.rows));
        const int64_t panel = panel_of(n);
        for (int64_t tile = mine.first; tile < mine.last; tile += panel) {
            multiply(weight, rows, n, {tile, std::min(tile + panel, mine.last)}, out + tile * kTile, stride, own + scratch);
        }
    }

    void run() const {
        if (call.does(kProject)) {
            multiply_into(*call.block.o, given(0, call.block.o->columns), product(0), common.hidden_stride);
            team.barrier();
            if (!call.does(kMlp)) leave_projected();
        }
        if (call.does(kMlp)) {
            const void* normed = enter_mlp();
            gate_up(normed);
            team.barrier();
            multiply_into(*call.block.down, shared + common.inner, product(0), common.hidden_stride);
            team.barrier();
        }
        if (call.does(kMlp) || call.does(kLeave)) leave();
    }

    void leave_projected() const {
        const Span rows = team.share(n);
        for (int64_t i = rows.first; i < rows.last; ++i) {
            kernels().rows.finish(product(i), call.block.o_bias, taken(i), call.scalar(), call.hidden());
        }
    }

    // The projected rows, or those that are given, through the norms; returns the normed rows.
    const void* enter_mlp() const {
        const PostBlock& block = call.block;
        const auto scalar = call.scalar();
        const auto& kernels = jf::kernels().rows;
        const bool each = each_norms_all(team, n), sums = !each || call.own || team.rank == 0;
        uint8_t* normed = each ? own + own_normed : shared + common.normed;
        void* row = own + own_rows;
        void* sum_of_no_use = at(row, call.hidden(), scalar);
        const Span rows = each ? Span{0, n} : team.share(n);
        for (int64_t i = rows.first; i < rows.last; ++i) {
            const int64_t start = (first + i) * call.hidden();
            const void* x = row;
            if (call.does(kProject)) {
                kernels.finish(product(i), block.o_bias, row, scalar, call.hidden());
            } else {
                x = given(i, call.hidden());
            }
            if (block.after_attention.weight != nullptr) {
                kernels.norm(x, nullptr, nullptr, row, scalar, block.after_attention, call.hidden());
                x = row;
            }
            void* sum = sums ? at(call.sum, start, scalar) : sum_of_no_use;
            kernels.norm(x, at(call.residual, start, scalar), sum, at(normed, i * call.hidden(), scalar), scalar, block.norm,
                         call.hidden());
        }
        if (!each) team.barrier();
        return normed;
    }

    void gate_up(const void* normed) const {
        const PostBlock& block = call.block;
        const int64_t features = call.inner();
        const auto scalar = call.scalar();
        const auto combine = [&](int64_t row, const float* gate, const float* up, int64_t from, int64_t width) {
            const void* gate_bias = block.gate_up_bias == nullptr ? nullptr : at(block.gate_up_bias, from, scalar);
            const void* up_bias = block.gate_up_bias == nullptr ? nullptr : at(block.gate_up_bias, features + from, scalar);
            jf::kernels().rows.gate(gate, up, gate_bias, up_bias, at(shared + common.inner, row * features + from, scalar), scalar,
                                    static_cast<Activation>(block.activation), width);
        };
        if (!common.aligned) {
            auto* wide = reinterpret_cast<float*>(shared + common.wide);
            multiply_into(*block.gate_up, normed, wide, common.inner_stride);
            team.barrier();
            const Span rows = team.share(n);
            for (int64_t i = rows.first; i < rows.last; ++i) {
                const float* gate = wide + i * common.inner_stride;
                combine(i, gate, gate + features, 0, features);
            }
            return;
        }
        const Weight& weight = *block.gate_up;
        const Rows rows = prepared(weight, normed, scalar, n, weight.columns, own + room);
        const Span mine = team.share(features / kTile);
        const int64_t panel = panel_of(n), up_tile = features / kTile;
        auto* gate = reinterpret_cast<float*>(own + panels);
        float* up = gate + n * panel * kTile;
        for (int64_t tile = mine.first; tile < mine.last; tile += panel) {
            const int64_t last = std::min(tile + panel, mine.last), width = (last - tile) * kTile;
            multiply(weight, rows, n, {tile, last}, gate, panel * kTile, own + scratch);
            multiply(weight, rows, n, {up_tile + tile, up_tile + last}, up, panel * kTile, own + scratch);
            for (int64_t i = 0; i < n; ++i) combine(i, gate + i * panel * kTile, up + i * panel * kTile, tile * kTile, width);
        }
    }

    // What the MLP gives, or what is given in its place, through its norm.
    void leave() const {
        const PostBlock& block = call.block;
        const Span rows = call.own ? Span{0, n} : team.share(n);
        for (int64_t i = rows.first; i < rows.last; ++i) {
            const void* x = taken(i);
            if (call.does(kMlp)) {
                kernels().rows.finish(product(i), block.down_bias, taken(i), call.scalar(), call.hidden());
            } else {
                x = given(i, call.hidden());
            }
            if (call.does(kLeave) && block.after_mlp.weight != nullptr) {
                kernels().rows.norm(x, nullptr, nullptr, taken(i), call.scalar(), block.after_mlp, call.hidden());
            }
        }
    }
};

}  // namespace

int64_t shared_bytes(const PostBlock& block, int64_t n) { return Common(block, n).bytes; }

void after_attention(const PostCall& call, const Team& team, int64_t first, int64_t n, uint8_t* shared) {
    Worker(call, team, first, n, shared).run();
}

}  // namespace jf

void jf_post_attention(const jf::PostBlock* block, int32_t steps, int64_t n, const void* in, const void* residual, void* out,
                       void* sum, int threads) {
    const jf::PostCall call{*block, steps, in, residual, out, sum};
    const auto bytes = [&](int64_t count) { return jf::shared_bytes(*block, count); };
    jf::over_rows(jf::Pool::shared(threads), n, bytes, [&](const jf::Team& team, int64_t first, int64_t count, uint8_t* shared) {
        jf::after_attention(call, team, first, count, shared);
    });
}
