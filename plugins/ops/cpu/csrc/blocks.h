// What stands before and after attention, as Python describes it once a layer; jackfield_ops_cpu/blocks.py has the same fields.
#pragma once

#include "rows.h"
#include "weight.h"

namespace jf {

struct PreBlock {
    const Weight* qkv;
    const void* qkv_bias;  // null: none
    Norm norm, q_norm, k_norm;  // of a head, the last two; weight null: none
    int64_t heads, kv_heads, head_size, v_head_size;
    int32_t scalar;
};

// Steps of what stands after attention. A run of one rank takes them all at once; between two ranks' steps there is a sum.
enum Steps : int32_t { kProject = 1, kMlp = 2, kLeave = 4 };

struct PostBlock {
    const Weight* o;
    const void* o_bias;
    Norm after_attention, norm;  // the first may be none
    const Weight* gate_up;
    const void* gate_up_bias;
    const Weight* down;
    const void* down_bias;
    Norm after_mlp;  // may be none
    int32_t activation, scalar;
};

}  // namespace jf
