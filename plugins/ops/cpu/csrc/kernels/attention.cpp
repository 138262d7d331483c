// The attention of some queries over a range of keys, in one pass with a running softmax, and the merging of such results.
//
// All scores stay in float32. Where the level multiplies pairs of bfloat16, queries, keys and values are taken as they are and
// only the weights are rounded to it; everywhere else all is float32.
#include <algorithm>
#include <cmath>

#include "dispatch.h"
#include "kernels/attention_tiles.h"

namespace jf::JF_NAMESPACE {
namespace {

constexpr double kLog2e = 1.4426950408889634;
constexpr float kSlack = 8;
constexpr int kDepth = 64;  // steps that are summed apart: float32 loses digits in one long sum

constexpr int padded(int n, int to) { return (n + to - 1) / to * to; }

// A piece of the scratch memory, which grows from one to the next.
template <class T>
T* take(char*& scratch, int64_t n) {
    T* const piece = reinterpret_cast<T*>(scratch);
    scratch += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return piece;
}

inline void store_weights(Floats, Vf weights, int column, float* to) { store(to + column, weights); }
#if defined(__AVX512BF16__)
inline void store_weights(Pairs, Vf weights, int column, uint32_t* to) {
    store(reinterpret_cast<uint16_t*>(to) + column, _mm512_cvtneps_pbh(as<__m512>(weights)));
}
#endif

// What one query has seen so far. Scores count in powers of 2: they are multiplied by log2(e).
struct Running {
    Vf weight;  // sum of the weights, by lanes
    float largest;
};

// What turns a product of q and k into a power of 2: factor, and (unless 0) a cap of what comes out.
struct Scaling {
    float factor, cap;
    bool capped;

    explicit Scaling(const AttentionWork& work)
        : factor(static_cast<float>(work.soft_cap > 0 ? work.scale / work.soft_cap : work.scale * kLog2e)),
          cap(static_cast<float>(work.soft_cap * kLog2e)), capped(work.soft_cap > 0) {}
};

// In place; columns outside [low, high) become -inf.
inline void scale_and_hide(const Scaling& scaling, float* scores, int columns, int low, int high) {
    for (int c = 0; c < columns; c += kLanes) {
        Vf s = load<Vf>(scores + c) * scaling.factor;
        if (scaling.capped) s = tanh_of(s) * scaling.cap;
        const Vi column = lane_numbers() + c;
        store(scores + c, (column >= low) & (column < high) ? s : all(-INFINITY));
    }
}

// A step of the running softmax for the scores of one query. Its weights are powers of the distance to a score that is the
// largest within kSlack: larger weights than 1 do no harm, and sums that need not be multiplied save time.
// Plain floats: a vector that is written in parts and read as one waits for all of them.
struct Step {
    float factor, shift;
    float scale;  // by which all that was summed before must be multiplied
};

// Looks at scores [columns], of which those outside [low, high) become -inf.
inline Step look(const Scaling& scaling, float* scores, int columns, int low, int high, Running& running) {
    Step step{scaling.factor, 0, 1};
    if (scaling.capped || low > 0 || high < columns || !(step.factor > 0)) {
        scale_and_hide(scaling, scores, columns, low, high);
        step.factor = 1;
    }
    Vf most = load<Vf>(scores);
    for (int c = kLanes; c < columns; c += kLanes) most = larger(load<Vf>(scores + c), most);
    const float largest = largest_of(most) * step.factor;
    if (largest > running.largest + kSlack) {
        if (running.largest > -INFINITY) {
            step.scale = exp2_of(all(running.largest - largest))[0];
            running.weight *= step.scale;
        }
        running.largest = largest;
    }
    step.shift = running.largest;
    return step;
}

// Scores -> weights; N vectors, or as many as columns say.
template <class Op, int N>
inline void weigh(Op op, const Step& step, const float* scores, int columns, Running& running,
                  typename Op::Unit* weights) {
    const Vf factor = all(step.factor), shift = all(step.shift);
    Vf found[N], sum = running.weight;
    for (int c = 0; c < columns; c += N * kLanes) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            found[n] = exp2_of<Op::kRough>(load<Vf>(scores + c + n * kLanes) * factor - shift);
        }
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
            sum += found[n];
            store_weights(op, found[n], c + n * kLanes, weights);
        }
    }
    running.weight = sum;
}

template <class T, class Op>
void attend(const AttentionWork& work) {
    const Op op;
    const Scaling scaling(work);
    using Unit = typename Op::Unit;
    const int vectors = work.tokens * work.share, depth = (work.head + Op::kPack - 1) / Op::kPack;
    const int ldq = padded(depth, 16), ldv = padded(work.v_head, Op::kPad);
    char* scratch = static_cast<char*>(work.scratch);
    float* const keys = take<float>(scratch, depth * kKeyTile);
    float* const values = take<float>(scratch, kKeyTile / Op::kPack * ldv);
    float* const scores = take<float>(scratch, kRows * kKeyTile);
    Unit* const weights = take<Unit>(scratch, kRows * kKeyTile / Op::kPack);
    Unit* const queries = take<Unit>(scratch, vectors * ldq);
    float* const sums = take<float>(scratch, vectors * ldv);
    Running* const running = take<Running>(scratch, vectors);

    for (int i = 0, t = 0; t < work.tokens; ++t) {
        const T* q = static_cast<const T*>(work.q) + work.queries[t].token * work.q_stride;
        for (int h = 0; h < work.share; ++h, ++i) {
            pack_query(op, q + h * work.head, work.head, queries + i * ldq);
            running[i] = {Vf{}, -INFINITY};
        }
    }
    std::memset(sums, 0, sizeof(float) * vectors * ldv);

    for (int start = work.begin; start < work.end; start += kKeyTile) {
        const int left = work.end - start, n = std::min(kKeyTile, left);
        const uint32_t* const units = work.units + (start - work.begin);
        if (start == work.begin) {  // those of later tiles are asked for a tile ahead
            for (int i = 0; i < n; ++i) ask_for(static_cast<const T*>(work.values) + static_cast<int64_t>(units[i]) * work.v_head, work.v_head);
        }
        pack_keys(op, static_cast<const T*>(work.keys), units, n, left, work.head, keys);
        pack_values(op, static_cast<const T*>(work.values), units, n, left, work.v_head, ldv, values);
        for (int first = 0; first < vectors; first += kRows) {
            const int rows = std::min(kRows, vectors - first);
            const AttentionQuery* const begin = work.queries + first / work.share;
            const AttentionQuery* const end = work.queries + (first + rows - 1) / work.share + 1;
            int low = kKeyTile, high = 0;  // columns of this tile that one of these queries sees
            for (auto query = begin; query < end; ++query) {
                low = std::min(low, std::max(query->low - start, 0));
                high = std::max(high, std::min(query->high - start, n));
            }
            if (low >= high) continue;
            const int columns = (high + kLanes - 1) / kLanes * kLanes;
            for (int d = 0; d < depth; d += kDepth) {
                multiply<Op>(rows, scores, kKeyTile, queries + first * ldq + d, ldq, keys + d * kKeyTile, kKeyTile,
                             std::min(kDepth, depth - d), columns / kLanes, d > 0);
            }
            Step steps[kRows];
            for (int r = 0; r < rows; ++r) {
                const AttentionQuery& query = work.queries[(first + r) / work.share];
                const int from = std::max(query.low - start, 0), to = std::min(query.high - start, n);
                if (from < to) {
                    steps[r] = look(scaling, scores + r * kKeyTile, columns, from, to, running[first + r]);
                } else {  // weights of 0
                    scale_and_hide(scaling, scores + r * kKeyTile, columns, 0, 0);
                    steps[r] = {1, 0, 1};
                }
            }
            for (int r = 0; r < rows; ++r) {
                const float* const found = scores + r * kKeyTile;
                Unit* const into = weights + r * (kKeyTile / Op::kPack);
                if (columns == 4 * kLanes) {
                    weigh<Op, 4>(op, steps[r], found, columns, running[first + r], into);
                } else {
                    weigh<Op, 1>(op, steps[r], found, columns, running[first + r], into);
                }
                if (steps[r].scale != 1) {
                    float* const sum = sums + (first + r) * ldv;
                    for (int d = 0; d < ldv; d += kLanes) store(sum + d, load<Vf>(sum + d) * steps[r].scale);
                }
            }
            multiply<Op>(rows, sums + first * ldv, ldv, weights, kKeyTile / Op::kPack, values, ldv,
                         (high + Op::kPack - 1) / Op::kPack, ldv / kLanes, true);
        }
    }

    for (int i = 0; i < vectors; ++i) {
        const float* const sum = sums + i * ldv;
        const float weight = sum_of(running[i].weight);
        if (work.out == nullptr) {
            float* const to = work.partial + static_cast<int64_t>(i) * attention_partial(work.v_head);
            for (int d = 0; d < work.v_head; d += kLanes) from_floats(in_order(op, sum, d), to + d, work.v_head - d);
            to[work.v_head] = running[i].largest;
            to[work.v_head + 1] = weight;
            continue;
        }
        T* const to = static_cast<T*>(work.out) + work.queries[i / work.share].token * work.out_stride +
                      i % work.share * work.v_head;
        const float share = 1 / weight;
        for (int d = 0; d < work.v_head; d += kLanes) {
            from_floats(in_order(op, sum, d) * share, to + d, work.v_head - d);
        }
    }
}

template <class T>
void merge(const float* const* partials, int count, int v_head, void* out) {
    constexpr int kBlock = 8;  // vectors at a time
    float largest = -INFINITY, weight = 0;
    for (int i = 0; i < count; ++i) largest = std::max(largest, partials[i][v_head]);
    const auto factor_of = [&](const float* partial) { return exp2_of(all(partial[v_head] - largest))[0]; };
    for (int i = 0; i < count; ++i) {
        if (partials[i][v_head + 1] != 0) weight += partials[i][v_head + 1] * factor_of(partials[i]);
    }
    for (int first = 0; first < v_head; first += kBlock * kLanes) {
        const int n = std::min(v_head - first, kBlock * kLanes);
        Vf sums[kBlock] = {};
        for (int i = 0; i < count; ++i) {
            if (partials[i][v_head + 1] == 0) continue;  // this part of the keys was hidden from it
            const float factor = factor_of(partials[i]) / weight;
            for (int d = 0; d < n; d += kLanes) sums[d / kLanes] += to_floats(partials[i] + first + d, n - d) * factor;
        }
        T* const to = static_cast<T*>(out) + first;
        for (int d = 0; d < n; d += kLanes) from_floats(sums[d / kLanes], to + d, n - d);
    }
}

void units(const int32_t* slots, int64_t n, int page, int heads, bool head_major, uint32_t* to) {
    if (!head_major) {
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint32_t>(slots[i]) * heads;
    } else if ((page & (page - 1)) == 0) {
        const int shift = __builtin_ctz(page);
        for (int64_t i = 0; i < n; ++i) {
            const uint32_t slot = slots[i], of = slot >> shift;
            to[i] = slot + (of * (heads - 1) << shift);
        }
    } else {
        for (int64_t i = 0; i < n; ++i) {
            const uint32_t slot = slots[i], of = slot / page;
            to[i] = slot + of * (heads - 1) * page;
        }
    }
}

}  // namespace

void register_attention(Kernels& kernels) {
    auto& attention = kernels.attention;
    attention.work[kFloat32] = attend<float, Floats>;
#if defined(__AVX512BF16__)
    attention.work[kBfloat16] = attend<bf16_t, Pairs>;
#else
    attention.work[kBfloat16] = attend<bf16_t, Floats>;
#endif
    attention.work[kFloat16] = attend<f16_t, Floats>;
    attention.merge[kFloat32] = merge<float>;
    attention.merge[kBfloat16] = merge<bf16_t>;
    attention.merge[kFloat16] = merge<f16_t>;
    attention.units = units;
}

}  // namespace jf::JF_NAMESPACE
