#include "api.h"
#include "dispatch.h"
#include "pool.h"

namespace {

// Rows are shared out whole: a row of a large vocabulary is a few microseconds.
template <class F>
void for_each_row(int64_t n, int threads, F&& row) {
    if (n == 1) {
        row(0, 0);
        return;
    }
    auto& pool = jf::Pool::shared(threads);
    pool.run([&](int thread) {
        for (int64_t i = thread; i < n; i += pool.size()) row(i, thread);
    });
}

// A thread's part of the scratch, in whole cache lines.
int64_t part_bytes(int64_t vocab) { return (jf::draw_scratch(vocab) + 63) / 64 * 64; }

}  // namespace

void jf_arg_max(const float* logits, int64_t n, int64_t vocab, int64_t stride, int64_t* tokens, int threads) {
    const auto& kernels = jf::kernels();
    for_each_row(n, threads, [&](int64_t i, int) { tokens[i] = kernels.arg_max(logits + i * stride, vocab); });
}

int64_t jf_draw_bytes(int64_t vocab, int threads) { return part_bytes(vocab) * threads; }

void jf_draw(const float* logits, int64_t n, int64_t vocab, int64_t stride, const float* temperature, const int32_t* top_k,
             const float* top_p, const float* min_p, const int64_t* streams, int64_t* tokens, void* scratch, int threads) {
    const auto& kernels = jf::kernels();
    for_each_row(n, threads, [&](int64_t i, int thread) {
        const float* row = logits + i * stride;
        tokens[i] = kernels.arg_max(row, vocab);
        if (tokens[i] < 0 || temperature[i] <= 0.0f) return;
        const jf::Draw draw{temperature[i], top_k[i], top_p[i], min_p[i], static_cast<uint64_t>(streams[i])};
        char* mine = static_cast<char*>(scratch) + part_bytes(vocab) * thread;
        tokens[i] = kernels.drawing.draw(row, vocab, tokens[i], draw, mine);
    });
}
