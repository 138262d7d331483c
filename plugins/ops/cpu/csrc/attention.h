// The C interface of paged attention: a backend for one run, plans of its batches, and the attention of one layer.
#pragma once

#include "api.h"

// A KV group: tables int32, rows stride apart, of slots in pages; head_major: [pages, kv_heads, page, head], else
// [pages, page, kv_heads, head].
struct JfAttentionGroup {
    const int32_t* table;
    int64_t stride;
    int32_t page, kv_heads, head_major;
};

// What layers that share the work of a plan have in common. group: its number; window 0: all.
struct JfAttentionKind {
    int32_t group, heads, kv_heads, head, v_head, window, causal;
};

// One layer's memory and factors. kind: its number; soft_cap 0: off.
struct JfAttentionLayer {
    int32_t kind;
    double scale, soft_cap;
    void* keys;
    void* values;
};

// dtype: a jf::Scalar. The tables must live as long as the backend.
JF_API void* jf_attention_new(int dtype, int threads, const JfAttentionGroup* groups, int n_groups,
                              const JfAttentionKind* kinds, int n_kinds);
JF_API void jf_attention_free(void* backend);

// n rows: rows of the tables [n], starts [n + 1] of their new tokens, kv_lens [n], and for each group the slots of all new
// tokens. Nothing of it is needed after the call.
JF_API void* jf_attention_plan(void* backend, const int32_t* rows, const int32_t* starts, const int32_t* kv_lens, int n,
                               const int64_t* const* out_slots);
// Back to its backend, which uses the memory again.
JF_API void jf_attention_plan_free(void* plan);
// How many passes over shared keys the plan has, and how many tokens they cover: for tests and measurements.
JF_API void jf_attention_plan_shared(const void* plan, int kind, int64_t* passes, int64_t* tokens);

// Strides in elements between tokens. keys null: they are written already.
JF_API void jf_attention_attend(void* plan, const JfAttentionLayer* layer, const void* q, int64_t q_stride, const void* k,
                                int64_t k_stride, const void* v, int64_t v_stride, void* out);
