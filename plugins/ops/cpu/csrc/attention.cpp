// One layer's attention: the new keys and values go to their slots, then all threads take works until none is left, then what
// was computed in parts is merged.
#include "attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "attention_run.h"
#include "attention_state.h"
#include "dispatch.h"

namespace jf {
namespace {

constexpr int64_t kWorthSharing = 48 << 10;  // bytes of keys and values: less is read sooner than another thread wakes
constexpr int kFewTokens = 8;               // new ones, which the caller writes alone

// One tensor of a layer's KV, as bytes.
struct Vectors {
    char* base;
    int64_t bytes;  // of one vector
    char* at(int64_t unit) const { return base + unit * bytes; }
};

// values [tokens, kv_heads, size] of tokens first, first + step ... to their slots
void write(const Vectors& to, const char* from, int64_t stride_bytes, const std::vector<int64_t>& slots,
           const JfAttentionGroup& group, int first, int step) {
    const auto tokens = static_cast<int>(slots.size());
    for (int t = first; t < tokens; t += step) {
        const char* token = from + t * stride_bytes;
        if (!group.head_major) {
            std::memcpy(to.at(slots[t] * group.kv_heads), token, to.bytes * group.kv_heads);
            continue;
        }
        const int64_t page = slots[t] / group.page;
        int64_t unit = page * group.kv_heads * group.page + (slots[t] - page * group.page);
        for (int h = 0; h < group.kv_heads; ++h, unit += group.page) {
            std::memcpy(to.at(unit), token + h * to.bytes, to.bytes);
        }
    }
}

class LayerRun {
  public:
    LayerRun(Plan& plan, const JfAttentionLayer& layer, const void* q, int64_t q_stride, void* out,
             std::atomic<int>& next)
        : plan_(plan), backend_(*plan.backend), layer_(layer), kind_(backend_.kinds[layer.kind]),
          group_(backend_.groups[kind_.group]), schedule_(plan.schedules[layer.kind]),
          bytes_(kBytes[backend_.dtype]), share_(kind_.heads / kind_.kv_heads),
          keys_{static_cast<char*>(layer.keys), kind_.head * bytes_},
          values_{static_cast<char*>(layer.values), kind_.v_head * bytes_}, q_(static_cast<const char*>(q)),
          q_stride_(q_stride), out_(static_cast<char*>(out)), next_(next) {}

    void run(const void* k, int64_t k_stride, const void* v, int64_t v_stride) {
        const auto& slots = plan_.out_slots[kind_.group];
        const auto write_new = [&](int first, int step) {
            write(keys_, static_cast<const char*>(k), k_stride * bytes_, slots, group_, first, step);
            write(values_, static_cast<const char*>(v), v_stride * bytes_, slots, group_, first, step);
        };
        plan_.reserve(layer_.kind);
        const bool alone = backend_.pool->size() == 1 || schedule_.keys * (keys_.bytes + values_.bytes) < kWorthSharing;
        const bool write_apart = k != nullptr && !alone && plan_.tokens > kFewTokens;
        if (k != nullptr && !write_apart) write_new(0, 1);
        const int step = alone ? 1 : backend_.pool->size();
        const auto barrier = [&] {
            if (!alone) backend_.pool->barrier();
        };
        auto on_thread = [&](int thread) {
            if (write_apart) {
                write_new(thread, step);
                barrier();
            }
            member(thread, step, barrier);
        };
        if (alone) {
            on_thread(0);
        } else {
            backend_.pool->run(on_thread);
        }
    }

    // One thread's part, once the new keys and values are written.
    template <class Barrier>
    void member(int thread, int threads, Barrier&& barrier) {
        const auto items = static_cast<int>(schedule_.items.size());
        const int together = items >= 8 * threads * kind_.kv_heads ? kind_.kv_heads : 1;
        for (int i; (i = next_.fetch_add(together, std::memory_order_relaxed)) < items;) {
            for (int j = i; j < i + together; ++j) attend(schedule_.items[j], thread);
        }
        if (schedule_.merges.empty()) return;
        barrier();
        merge(thread, threads);
    }

  private:
    float* partial(const AttentionBlock& block, int chunk, int head) const {
        const int64_t at = (static_cast<int64_t>(chunk) * kind_.kv_heads + head) * block.tokens * share_;
        return plan_.partials.data() + (block.partial + at) * attention_partial(kind_.v_head);
    }

    void attend(const AttentionItem& item, int thread) {
        const AttentionBlock& block = schedule_.blocks[item.block];
        const int64_t head_unit = group_.head_major ? group_.page : 1;
        AttentionWork work;
        work.keys = keys_.at(item.head * head_unit);
        work.values = values_.at(item.head * head_unit);
        work.begin = block.begin + item.chunk * block.chunk;
        work.end = std::min(block.end, work.begin + block.chunk);
        work.units = schedule_.units.data() + block.units + work.begin;
        work.queries = schedule_.queries.data() + block.query;
        work.tokens = block.tokens;
        work.share = share_;
        work.head = kind_.head;
        work.v_head = kind_.v_head;
        work.scale = layer_.scale;
        work.soft_cap = layer_.soft_cap;
        work.q = q_ + item.head * share_ * keys_.bytes;
        work.q_stride = q_stride_;
        const bool whole = block.partial < 0;
        work.out = whole ? out_ + item.head * share_ * values_.bytes : nullptr;
        work.out_stride = static_cast<int64_t>(kind_.heads) * kind_.v_head;
        work.partial = whole ? nullptr : partial(block, item.chunk, item.head);
        work.scratch = backend_.scratch_of(thread);
        kernels().attention.work[backend_.dtype](work);
    }

    // Every token's results of all its blocks and chunks.
    void merge(int first, int step) const {
        std::vector<const float*> found;
        const auto merge_of = kernels().attention.merge[backend_.dtype];
        const auto count = static_cast<int>(schedule_.merges.size()) * kind_.heads;
        for (int i = first; i < count; i += step) {
            const AttentionMerge& one = schedule_.merges[i / kind_.heads];
            const int head = i % kind_.heads;
            found.clear();
            for (int p = one.first; p < one.first + one.count; ++p) {
                const AttentionPart& part = schedule_.parts[p];
                const AttentionBlock& block = schedule_.blocks[part.block];
                const int64_t within = part.index * share_ + head % share_;
                for (int chunk = 0; chunk < block.chunks; ++chunk) {
                    found.push_back(partial(block, chunk, head / share_) + within * attention_partial(kind_.v_head));
                }
            }
            merge_of(found.data(), static_cast<int>(found.size()), kind_.v_head,
                     out_ + (static_cast<int64_t>(one.token) * kind_.heads + head) * values_.bytes);
        }
    }

    Plan& plan_;
    Backend& backend_;
    const JfAttentionLayer& layer_;
    const JfAttentionKind& kind_;
    const JfAttentionGroup& group_;
    const AttentionSchedule& schedule_;
    const int64_t bytes_;
    const int share_;
    const Vectors keys_, values_;
    const char* const q_;
    const int64_t q_stride_;
    char* const out_;
    std::atomic<int>& next_;
};

}  // namespace

int64_t attention_tokens(const void* plan) { return static_cast<const Plan*>(plan)->tokens; }

void attention_reserve(void* plan) {
    auto& one = *static_cast<Plan*>(plan);
    for (size_t kind = 0; kind < one.schedules.size(); ++kind) one.reserve(static_cast<int>(kind));
}

void attend(void* plan, const JfAttentionLayer& layer, const void* q, void* out, std::atomic<int>& next, const Team& team) {
    auto& one = *static_cast<Plan*>(plan);
    const JfAttentionKind& kind = one.backend->kinds[layer.kind];
    LayerRun(one, layer, q, static_cast<int64_t>(kind.heads) * kind.head, out, next).member(team.rank, team.size, [&] {
        team.barrier();
    });
}

}  // namespace jf

extern "C" {

void* jf_attention_new(int dtype, int threads, const JfAttentionGroup* groups, int n_groups, const JfAttentionKind* kinds,
                       int n_kinds) {
    auto backend = std::make_shared<jf::Backend>();
    backend->dtype = dtype;
    backend->pool = &jf::Pool::shared(threads);
    backend->groups.assign(groups, groups + n_groups);
    backend->kinds.assign(kinds, kinds + n_kinds);
    size_t bytes = 0;
    for (const auto& kind : backend->kinds) {
        const int vectors = std::max(jf::kMostQueries, kind.heads / kind.kv_heads);
        bytes = std::max(bytes, jf::attention_scratch(vectors, kind.head, kind.v_head));
    }
    for (int thread = 0; thread < threads; ++thread) backend->scratch.emplace_back(new char[bytes + 64]);
    return new jf::Handle{std::move(backend)};
}

void jf_attention_free(void* backend) {
    auto* const handle = static_cast<jf::Handle*>(backend);
    {
        std::lock_guard<std::mutex> lock(handle->backend->mutex);
        handle->backend->idle.clear();  // idle plans hold no backend; those in use keep it alive
    }
    delete handle;
}

void* jf_attention_plan(void* handle, const int32_t* rows, const int32_t* starts, const int32_t* kv_lens, int n,
                        const int64_t* const* out_slots) {
    const auto& backend = static_cast<jf::Handle*>(handle)->backend;
    std::unique_ptr<jf::Plan> plan;
    {
        std::lock_guard<std::mutex> lock(backend->mutex);
        if (!backend->idle.empty()) {
            plan = std::move(backend->idle.back());
            backend->idle.pop_back();
        }
    }
    if (!plan) plan = std::make_unique<jf::Plan>();
    plan->backend = backend;
    plan->schedules.resize(backend->kinds.size());
    plan->out_slots.resize(backend->groups.size());
    plan->tokens = starts[n];
    const jf::AttentionRows batch{rows, starts, kv_lens, n};
    for (size_t i = 0; i < backend->kinds.size(); ++i) {
        const auto& kind = backend->kinds[i];
        plan->schedules[i].make(batch, kind, backend->groups[kind.group], backend->pool->size());
    }
    for (size_t i = 0; i < backend->groups.size(); ++i) {
        plan->out_slots[i].assign(out_slots[i], out_slots[i] + plan->tokens);
    }
    return plan.release();
}

void jf_attention_plan_free(void* plan) {
    std::unique_ptr<jf::Plan> one(static_cast<jf::Plan*>(plan));
    const auto backend = std::move(one->backend);
    std::lock_guard<std::mutex> lock(backend->mutex);
    backend->idle.push_back(std::move(one));
}

void jf_attention_plan_shared(const void* plan, int kind, int64_t* passes, int64_t* tokens) {
    const auto& schedule = static_cast<const jf::Plan*>(plan)->schedules[kind];
    *passes = schedule.shared_passes;
    *tokens = schedule.shared_tokens;
}

void jf_attention_attend(void* plan, const JfAttentionLayer* layer, const void* q, int64_t q_stride, const void* k,
                         int64_t k_stride, const void* v, int64_t v_stride, void* out) {
    std::atomic<int> next{0};
    jf::LayerRun(*static_cast<jf::Plan*>(plan), *layer, q, q_stride, out, next).run(k, k_stride, v, v_stride);
}
}
