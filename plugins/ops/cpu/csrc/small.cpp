// Norm and embedding by themselves.
#include <cstring>

#include "api.h"
#include "rows.h"
#include "team.h"

void jf_norm(const void* x, const void* residual, void* sum, void* out, int32_t scalar, const jf::Norm* norm, int64_t n,
             int64_t size, int threads) {
    const auto type = static_cast<jf::Scalar>(scalar);
    jf::share_out(n, n * size, threads, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t start = i * size;
            jf::kernels().rows.norm(jf::at(x, start, type), residual == nullptr ? nullptr : jf::at(residual, start, type),
                                    sum == nullptr ? nullptr : jf::at(sum, start, type), jf::at(out, start, type), type, *norm,
                                    size);
        }
    });
}

void jf_embedding(const int64_t* ids, int64_t n, const void* table, int64_t row_bytes, void* out, int threads) {
    jf::share_out(n, n * row_bytes / 2, threads, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            std::memcpy(static_cast<uint8_t*>(out) + i * row_bytes, static_cast<const uint8_t*>(table) + ids[i] * row_bytes,
                        static_cast<size_t>(row_bytes));
        }
    });
}
