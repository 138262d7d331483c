// The C interface of all layers of a forward in one call.
#pragma once

#include "attention.h"
#include "blocks.h"

// cos, sin float32 [n, half], rows stride elements apart.
struct JfAngles {
    const float *cos, *sin;
    int64_t stride, half;
};

// angles: number of those it turns by; -1: none.
struct JfLayer {
    const jf::PreBlock* pre;
    const JfAttentionLayer* attention;
    const jf::PostBlock* post;
    int64_t angles;
};

// x [n, hidden] through count >= 1 layers -> out and sum, both [n, hidden]: the last one's output before the residual is added, and
// the residual. plan: of jf_attention_plan, of a backend with as many threads. 0: the plan is not of n tokens.
JF_API int jf_layers(const JfLayer* layers, int64_t count, int64_t n, const void* x, const JfAngles* angles, void* plan, void* out,
                     void* sum, int threads);
