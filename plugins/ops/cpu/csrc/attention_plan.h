// What a batch looks like to the attention kernels: which queries go over which keys together. It knows tables and lengths,
// no tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"
#include "kernels/attention.h"

namespace jf {

// A batch as jf_attention_plan gets it.
struct AttentionRows {
    const int32_t* rows;
    const int32_t* starts;
    const int32_t* kv_lens;
    int n;
};

// Queries [query, query + tokens) over keys [begin, end), in chunks of `chunk` keys.
struct AttentionBlock {
    int32_t query, tokens;
    int32_t begin, end, chunk, chunks;
    int64_t units;    // the key at position p has units[units + p]
    int64_t partial;  // first of its chunks * kv_heads * tokens * share partial results; -1: it writes the output
};

struct AttentionItem {
    int32_t block, head, chunk;
};

// The partial results of a token: in `blocks` of the schedule, at [first, first + count), and its place in each.
struct AttentionMerge {
    int32_t token, first, count;
};
struct AttentionPart {
    int32_t block, index;
};

// The work of every layer of one kind.
struct AttentionSchedule {
    std::vector<AttentionQuery> queries;
    std::vector<AttentionBlock> blocks;
    std::vector<AttentionItem> items;  // the largest first
    std::vector<AttentionMerge> merges;
    std::vector<AttentionPart> parts;
    std::vector<uint32_t> units;
    int64_t partials = 0;
    int64_t keys = 0;  // key vectors that are read, a measure of the work
    int64_t shared_passes = 0, shared_tokens = 0;

    void make(const AttentionRows& rows, const JfAttentionKind& kind, const JfAttentionGroup& group, int threads);

  private:
    struct Row {
        const int32_t* table;
        int32_t start, tokens, kv_len;  // new tokens: where they start and how many
        int32_t own;                    // first key that is not in a shared pass
        int32_t cached() const { return kv_len - tokens; }
    };
    void share(std::vector<int>& members, int begin, const JfAttentionKind& kind, const JfAttentionGroup& group);
    int64_t add_units(const Row& row, int begin, int end, const JfAttentionGroup& group);
    void add_queries(const Row& row, int first, int tokens, const JfAttentionKind& kind);
    void add_blocks(const Row& row, const JfAttentionKind& kind, const JfAttentionGroup& group, int most_tokens);
    void split(const JfAttentionKind& kind, int threads);
    void find_merges(int tokens);

    std::vector<Row> rows_;
    std::vector<int32_t> count_;
};

}  // namespace jf
