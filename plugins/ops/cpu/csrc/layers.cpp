// All layers of a forward: few rows by one team that stays together from the first layer to the last, many by the drivers of the
// single blocks, one after the other.
#include "layers.h"

#include <atomic>
#include <memory>

#include "api.h"
#include "attention_run.h"
#include "stages.h"

namespace jf {
namespace {

constexpr int32_t kAllSteps = kProject | kMlp | kLeave;

struct Forward {
    const JfLayer* layers;
    int64_t count, n;
    const void* x;
    const JfAngles* angles;
    void* plan;
    void *out, *sum;
};

// Buffers that the layers use one after the other, each as large as the largest layer wants it.
struct Places {
    int64_t q = 0, k = 0, v = 0, attended = 0, before = 0, after = 0, own = 0, own_sum = 0, bytes = 0;
    int64_t own_bytes = 0;  // from one member's own rows to the next one's

    // members: those with rows of their own. together: what blocks want in common is wanted too.
    Places(const Forward& forward, int64_t members, bool together) {
        const int64_t n = forward.n;
        const auto scalar = static_cast<Scalar>(forward.layers[0].pre->scalar);
        const int64_t element = bytes_of(scalar);
        int64_t most[6] = {};
        const auto want = [&](int which, int64_t size) { most[which] = std::max(most[which], size); };
        for (int64_t i = 0; i < forward.count; ++i) {
            const PreBlock& pre = *forward.layers[i].pre;
            want(0, n * pre.heads * pre.head_size * element);
            want(1, n * pre.kv_heads * pre.head_size * element);
            want(2, n * pre.kv_heads * pre.v_head_size * element);
            want(3, n * pre.heads * pre.v_head_size * element);
            if (!together) continue;
            want(4, shared_bytes(pre, n));
            want(5, shared_bytes(*forward.layers[i].post, n));
        }
        Layout layout;
        q = layout.add(most[0]), k = layout.add(most[1]), v = layout.add(most[2]), attended = layout.add(most[3]);
        before = layout.add(most[4]), after = layout.add(most[5]);
        Layout rows;
        rows.add(n * forward.layers[0].pre->qkv->columns * element);
        own_sum = rows.size();
        own_bytes = 2 * own_sum;
        own = layout.add(members * own_bytes);
        bytes = layout.size();
    }
};

PreCall entering(const Forward& forward, const JfLayer& layer, const Places& places, uint8_t* memory, const void* x,
                 const void* residual, void* sum) {
    PreCall call{*layer.pre, x, residual, sum, nullptr, nullptr, 0, 0, memory + places.q, memory + places.k, memory + places.v};
    if (layer.angles >= 0) {
        const JfAngles& angles = forward.angles[layer.angles];
        call.cos = angles.cos, call.sin = angles.sin, call.angles = angles.stride, call.half = angles.half;
    }
    return call;
}

// A member's way through all layers. With few rows every member keeps the rows between the layers, and the residual, for itself;
// else each row is of one member from layer to layer, because all share the rows out alike.
void member(const Forward& forward, const Team& team, const Places& places, uint8_t* memory, std::atomic<int>* next) {
    const bool own = each_norms_all(team, forward.n);
    uint8_t* const mine = memory + places.own + team.rank * places.own_bytes;
    void* const out = own && team.rank != 0 ? mine : forward.out;
    void* const sum = own && team.rank != 0 ? mine + places.own_sum : forward.sum;
    const void *x = forward.x, *residual = nullptr;
    for (int64_t i = 0; i < forward.count; ++i) {
        const JfLayer& layer = forward.layers[i];
        const NewKeyValues slots(forward.plan, *layer.attention);
        PreCall before = entering(forward, layer, places, memory, x, residual, sum);
        before.own = own;
        before.slots = &slots;
        before_attention(before, team, 0, forward.n, memory + places.before);
        team.barrier();
        attend(forward.plan, *layer.attention, before.q, memory + places.attended, next[i], team);
        team.barrier();
        const void* old = residual == nullptr ? x : sum;
        after_attention({*layer.post, kAllSteps, memory + places.attended, old, out, sum, own}, team, 0, forward.n,
                        memory + places.after);
        x = out, residual = sum;
    }
}

void together(const Forward& forward, Pool& pool) {
    const Places places(forward, each_norms_all({&pool, 0, pool.size()}, forward.n) ? pool.size() : 0, true);
    uint8_t* const memory = Arena::shared().reserve(places.bytes);
    const std::unique_ptr<std::atomic<int>[]> next(new std::atomic<int>[forward.count] {});
    attention_reserve(forward.plan);
    pool.run([&](int thread) {
        member(forward, pool.size() == 1 ? Team::alone() : Team::of(pool, thread), places, memory, next.get());
    });
}

void one_by_one(const Forward& forward, int threads) {
    const Places places(forward, 0, false);
    Arena arena;  // not kept: what so many rows need is large
    uint8_t* const memory = arena.reserve(places.bytes);
    const void *x = forward.x, *residual = nullptr;
    for (int64_t i = 0; i < forward.count; ++i) {
        const JfLayer& layer = forward.layers[i];
        const PreBlock& pre = *layer.pre;
        const PreCall call = entering(forward, layer, places, memory, x, residual, forward.sum);
        jf_pre_attention(&pre, forward.n, x, residual, forward.sum, call.cos, call.sin, call.angles, call.half, call.q, call.k,
                         call.v, threads);
        jf_attention_attend(forward.plan, layer.attention, call.q, pre.heads * pre.head_size, call.k,
                            pre.kv_heads * pre.head_size, call.v, pre.kv_heads * pre.v_head_size, memory + places.attended);
        jf_post_attention(layer.post, kAllSteps, forward.n, memory + places.attended, residual == nullptr ? x : forward.sum,
                          forward.out, forward.sum, threads);
        x = forward.out, residual = forward.sum;
    }
}

}  // namespace
}  // namespace jf

int jf_layers(const JfLayer* layers, int64_t count, int64_t n, const void* x, const JfAngles* angles, void* plan, void* out,
              void* sum, int threads) {
    if (jf::attention_tokens(plan) != n) return 0;
    const jf::Forward forward{layers, count, n, x, angles, plan, out, sum};
    auto& pool = jf::Pool::shared(threads);
    if (n <= jf::kBlockRows || (pool.size() > 1 && n < jf::kRowsApart)) {
        jf::together(forward, pool);
    } else {
        jf::one_by_one(forward, threads);
    }
    return 1;
}
