// A plain loop over memory: what the speed of products that wait for it is measured against.
#include <cstring>

#include "api.h"
#include "pool.h"

namespace {

typedef uint64_t Line __attribute__((vector_size(64)));

}  // namespace

int64_t jf_read(const uint8_t* data, int64_t bytes, int threads) {
    constexpr int kLines = 4;  // at once, so that they do not wait for each other
    const int64_t steps = bytes / static_cast<int64_t>(sizeof(Line)) / kLines;
    std::atomic<uint64_t> all{0};
    auto& pool = jf::Pool::shared(threads);
    pool.run([&](int thread) {
        Line seen[kLines] = {};
        for (int64_t step = steps * thread / pool.size(); step < steps * (thread + 1) / pool.size(); ++step) {
            for (int i = 0; i < kLines; ++i) {
                Line line;
                std::memcpy(&line, data + (step * kLines + i) * static_cast<int64_t>(sizeof(Line)), sizeof line);
                seen[i] |= line;
            }
        }
        uint64_t bits = 0;
        for (const Line& line : seen) {
            for (int i = 0; i < 8; ++i) bits |= line[i];
        }
        all |= bits;
    });
    return static_cast<int64_t>(all.load());
}
