// Greedy sampling.
#include <cmath>

#include "dispatch.h"

namespace jf::JF_NAMESPACE {
namespace {

// In two passes that the compiler turns into vectors: the largest value, then where it stands first.
int64_t arg_max(const float* values, int64_t n) {
    constexpr int kLanes = 64;
    float best[kLanes];
    int bad[kLanes] = {};
    for (int lane = 0; lane < kLanes; ++lane) best[lane] = -INFINITY;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const float x = values[i + lane];
            bad[lane] |= !(x < INFINITY);  // NaN or +inf
            best[lane] = x > best[lane] ? x : best[lane];
        }
    }
    float largest = -INFINITY;
    int wrong = 0;
    for (; i < n; ++i) {
        wrong |= !(values[i] < INFINITY);
        largest = values[i] > largest ? values[i] : largest;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        wrong |= bad[lane];
        largest = best[lane] > largest ? best[lane] : largest;
    }
    if (wrong || largest == -INFINITY) return -1;
    for (int64_t start = 0; start < n; start += kLanes) {
        const int64_t stop = start + kLanes < n ? start + kLanes : n;
        int found = 0;
        for (int64_t j = start; j < stop; ++j) found |= values[j] == largest;
        if (found) {
            for (int64_t j = start;; ++j) {
                if (values[j] == largest) return j;
            }
        }
    }
    return -1;
}

}  // namespace

void register_sampling(Kernels& kernels) { kernels.arg_max = arg_max; }

}  // namespace jf::JF_NAMESPACE
