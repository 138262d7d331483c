// Attention inside a run of the pool, for drivers that do more in it. Plans are those of jf_attention_plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "team.h"

namespace jf {

int64_t attention_tokens(const void* plan);
// Makes room for the parts of any layer; before the run.
void attention_reserve(void* plan);

// Where a layer's new keys and values go.
class NewKeyValues {
  public:
    NewKeyValues(const void* plan, const JfAttentionLayer& layer);
    // One head of a new token.
    void put_key(int64_t token, int64_t head, const void* key) const { put(layer_.keys, key_bytes_, token, head, key); }
    void put_value(int64_t token, int64_t head, const void* value) const { put(layer_.values, value_bytes_, token, head, value); }

  private:
    void put(void* base, int64_t bytes, int64_t token, int64_t head, const void* from) const;

    const JfAttentionLayer& layer_;
    const JfAttentionGroup& group_;
    const int64_t* slots_;
    int64_t key_bytes_, value_bytes_;
};

// A member's part of a layer's attention, once all new keys and values are at their places. q and out are dense; next: 0 when the
// first member comes. When it returns, other members may still be at theirs.
void attend(void* plan, const JfAttentionLayer& layer, const void* q, void* out, std::atomic<int>& next, const Team& team);

}  // namespace jf
