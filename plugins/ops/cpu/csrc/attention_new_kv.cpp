// One head of a new key or value to its slot.
#include <cstring>

#include "attention_run.h"
#include "attention_state.h"

namespace jf {

NewKeyValues::NewKeyValues(const void* plan, const JfAttentionLayer& layer)
    : layer_(layer), group_(group_of(*static_cast<const Plan*>(plan), layer)) {
    const auto& one = *static_cast<const Plan*>(plan);
    const JfAttentionKind& kind = one.backend->kinds[layer.kind];
    slots_ = one.out_slots[kind.group].data();
    key_bytes_ = static_cast<int64_t>(kind.head) * kBytes[one.backend->dtype];
    value_bytes_ = static_cast<int64_t>(kind.v_head) * kBytes[one.backend->dtype];
}

void NewKeyValues::put(void* base, int64_t bytes, int64_t token, int64_t head, const void* from) const {
    const int64_t slot = slots_[token], heads = group_.kv_heads, page = slot / group_.page;
    const int64_t unit = group_.head_major ? (page * heads + head) * group_.page + slot - page * group_.page : slot * heads + head;
    std::memcpy(static_cast<char*>(base) + unit * bytes, from, bytes);
}

}  // namespace jf
