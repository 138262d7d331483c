// Attention over paged keys and values: what a driver hands to the kernels. Nothing here knows rows, layouts or threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jf {

constexpr int kDtypes = 3;         // in the order of Scalar

constexpr int kKeyTile = 64;       // keys that are packed, and scored, together
constexpr int kMostQueries = 192;  // query vectors of one AttentionWork, unless one token has more

// One query token: where it stands in the batch, and the positions [low, high) of the sequence that it sees.
struct AttentionQuery {
    int32_t token, low, high;
};

// Some tokens' queries of one key/value head over a range of keys. Vectors are counted in `units`: the vector of the key at
// position begin + i starts at keys + units[i] * head, its value at values + units[i] * v_head (elements of the run's dtype).
struct AttentionWork {
    const void* keys;
    const void* values;
    const uint32_t* units;
    int32_t begin, end;  // positions of the keys; each is seen by one query at least
    const AttentionQuery* queries;
    int32_t tokens, share;  // query heads of this key/value head: a work has tokens * share query vectors
    int32_t head, v_head;
    double scale, soft_cap;  // soft_cap 0: off
    const void* q;          // [token, heads, head]: at this work's first query head
    int64_t q_stride;       // elements between tokens
    void* out;              // [token, heads, v_head]: at this work's first query head; null: write partial
    int64_t out_stride;
    float* partial;  // [tokens * share][attention_partial(v_head)]: unnormalised sums, then their largest score and weight
    void* scratch;   // attention_scratch() bytes, aligned to 64, of this thread
};

inline int attention_partial(int v_head) { return v_head + 2; }

// Bytes that a kernel needs for works of so many query vectors.
inline size_t attention_scratch(int vectors, int head, int v_head) {
    const size_t padded_head = (head + 63) / 64 * 64, padded_v = (v_head + 63) / 64 * 64;
    return sizeof(float) * (vectors * (padded_head + padded_v + 32) + kKeyTile * (padded_head + padded_v + 64));
}

struct AttentionKernels {
    void (*work[kDtypes])(const AttentionWork&);
    // out[v_head] = the partials' common result
    void (*merge[kDtypes])(const float* const* partials, int count, int v_head, void* out);
    // units of slots: slot * heads, or (head-major pages) slot / page * page * heads + slot % page
    void (*units)(const int32_t* slots, int64_t n, int page, int heads, bool head_major, uint32_t* units);
};

}  // namespace jf
