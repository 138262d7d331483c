// What stands behind the handles of attention.h.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "attention_plan.h"
#include "dispatch.h"
#include "pool.h"

namespace jf {

inline constexpr int kBytes[kDtypes] = {4, 2, 2};

struct Plan;

struct Backend {
    int dtype;  // a Scalar
    Pool* pool;
    std::vector<JfAttentionGroup> groups;
    std::vector<JfAttentionKind> kinds;
    std::vector<std::unique_ptr<char[]>> scratch;  // of each thread
    std::mutex mutex;
    std::vector<std::unique_ptr<Plan>> idle;

    void* scratch_of(int thread) const {
        return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch[thread].get()) + 63) / 64 * 64);
    }
};

struct Plan {
    std::shared_ptr<Backend> backend;
    std::vector<AttentionSchedule> schedules;  // of each kind
    std::vector<std::vector<int64_t>> out_slots;  // of each group
    std::vector<float> partials;  // of one layer at a time
    int tokens = 0;

    // Makes room for the partial results of a layer of this kind.
    void reserve(int kind) {
        const int64_t needed = schedules[kind].partials * attention_partial(backend->kinds[kind].v_head);
        if (static_cast<int64_t>(partials.size()) < needed) partials.resize(needed);
    }
};

inline const JfAttentionGroup& group_of(const Plan& plan, const JfAttentionLayer& layer) {
    return plan.backend->groups[plan.backend->kinds[layer.kind].group];
}

struct Handle {
    std::shared_ptr<Backend> backend;
};

}  // namespace jf
