// Drawing a token from a row of logits, as Ops.sample defines it.
#pragma once

#include <cstdint>

namespace jf {

// One row's parameters. temperature > 0; top_k >= the vocabulary's size, top_p >= 1 and min_p <= 0 are off.
struct Draw {
    float temperature;
    int64_t top_k;
    float top_p;
    float min_p;
    uint64_t stream;
};

constexpr int64_t kBinBytes = 49152;  // of the sums and counts by which the end of top-p is found

// Bytes of scratch that a draw takes: three floats and an index for each token, with room for whole vectors, and the bins.
inline int64_t draw_scratch(int64_t vocab) { return (vocab + 64) * (3 * 4 + 4) + 64 + kBinBytes; }

struct DrawingKernels {
    // heaviest: the index of the largest logit, which is finite. scratch: aligned to 64 bytes.
    int64_t (*draw)(const float* logits, int64_t vocab, int64_t heaviest, const Draw& parameters, void* scratch);
};

}  // namespace jf
