#include "api.h"
#include "dispatch.h"
#include "pool.h"

// Rows are shared out whole: a row of a large vocabulary is a few microseconds.
void jf_arg_max(const float* logits, int64_t n, int64_t vocab, int64_t stride, int64_t* tokens, int threads) {
    const auto& kernels = jf::kernels();
    auto rows = [&](int64_t first, int64_t step) {
        for (int64_t i = first; i < n; i += step) tokens[i] = kernels.arg_max(logits + i * stride, vocab);
    };
    if (n == 1) {
        rows(0, 1);
        return;
    }
    auto& pool = jf::Pool::shared(threads);
    pool.run([&](int thread) { rows(thread, pool.size()); });
}
