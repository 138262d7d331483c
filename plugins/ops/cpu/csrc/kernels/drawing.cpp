// Drawing tokens: an exponential race between those that the filters leave.
//
// A set of all tokens above some weight is looked for that proves where top-k and top-p end; only these are sorted and drawn
// from. Without a filter each token may win, but one number a token, made of its hash, tells of nearly all that they lose.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "dispatch.h"
#include "vec.h"

namespace jf::JF_NAMESPACE {
namespace {

constexpr int kBlock = 64;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
constexpr float kLeast[] = {0x1p-8f, 0x1p-12f, 0.0f};
constexpr float kSlack = 4e-7f;    // more than what float32 rounds in the sum that tells whether a token may win
constexpr double kDoubt = 1e-9;    // more than what double sums in another order differ by

// Of weights by their bits but the lowest: three hundredths wide. 1 has the last one for itself.
constexpr int kBinShift = 18, kBins = (0x3F800000 >> kBinShift) + 1;
struct Bins {
    double sums[kBins];
    int32_t counts[kBins];
};
static_assert(sizeof(Bins) <= kBinBytes);

inline uint32_t bin_of(float weight) {
    uint32_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    return bits >> kBinShift;
}

// jackfield.layers.noise: the finaliser of splitmix64 over stream + (id + 1) * golden.
inline uint64_t hash_of(uint64_t counter) {
    uint64_t z = counter;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

inline double time_of(uint64_t stream, int64_t id) {
    const uint64_t hash = hash_of(stream + (static_cast<uint64_t>(id) + 1) * kGolden);
    return -std::log((static_cast<double>(hash >> 12) + 0.5) * 0x1p-52);
}

// Entered with rising ids: of equal scores the lowest wins.
struct Race {
    uint64_t stream;
    double best = -1.0;
    int64_t winner = -1;

    void enter(int64_t id, float weight) {
        const double score = static_cast<double>(weight) / time_of(stream, id);
        if (score > best) {
            best = score;
            winner = id;
        }
    }
};

// Probabilities relative to the largest; the last vector is filled up with zeros. Returns their sum.
double weigh(const float* logits, int64_t vocab, float largest, float temperature, float* weights) {
    const V top = set1(largest), scale = set1(temperature);
    double total = 0.0;
    for (int64_t start = 0; start < vocab; start += kBlock) {
        V part = set1(0.0f);
        for (int64_t i = start; i < start + kBlock; i += kLanes) {
            V made = set1(0.0f);
            if (i + kLanes <= vocab) {
                made = exp_((load(logits + i) - top) / scale);
                store(weights + i, made);
            } else {
                float some[kLanes] = {};
                for (int lane = 0; lane < kLanes && i + lane < vocab; ++lane) some[lane] = logits[i + lane];
                store(some, exp_((load(some) - top) / scale));
                for (int lane = 0; lane < kLanes; ++lane) weights[i + lane] = i + lane < vocab ? some[lane] : 0.0f;
                made = load(weights + i);
            }
            part = part + made;
        }
        total += sum(part);
    }
    return total;
}

// The tokens of at least this weight, and more than none. Returns how many.
int64_t gather(const float* weights, int64_t vocab, float least, int32_t* ids, float* found) {
    const float bound = std::max(least, 1e-45f);
    int64_t count = 0;
    for (int64_t start = 0; start < vocab; start += kBlock) {
        int any = 0;
        for (int lane = 0; lane < kBlock; ++lane) any |= weights[start + lane] >= bound;
        if (!any) continue;
        for (int64_t i = start; i < start + kBlock; ++i) {
            if (weights[i] >= bound) {
                ids[count] = static_cast<int32_t>(i);
                found[count++] = weights[i];
            }
        }
    }
    return count;
}

// A token beats a score of s only if its weight over -log(u) does, and -log(u) is more than 1 - u: so only if u + weight / s is
// more than 1. This is looked at with the upper bits of the hash for u, in float32.
int64_t race_of_all(const float* weights, int64_t vocab, int64_t heaviest, uint64_t stream) {
    Race race{stream};
    double bound = 1.0 / time_of(stream, heaviest);
    for (int64_t start = 0; start < vocab; start += kBlock) {
        const float scale = static_cast<float>(1.0 / std::max(bound, race.best));
        const uint64_t first = stream + (static_cast<uint64_t>(start) + 1) * kGolden;
        float sums[kBlock];
        int any = 0;
        for (int lane = 0; lane < kBlock; ++lane) {
            const uint64_t hash = hash_of(first + static_cast<uint64_t>(lane) * kGolden);
            sums[lane] = weights[start + lane] * scale + static_cast<float>(static_cast<int32_t>(hash >> 33)) * 0x1p-31f;
        }
        for (int lane = 0; lane < kBlock; ++lane) any |= sums[lane] >= 1.0f - kSlack;
        if (!any) continue;
        for (int lane = 0; lane < kBlock; ++lane) {
            if (sums[lane] >= 1.0f - kSlack && weights[start + lane] > 0.0f) race.enter(start + lane, weights[start + lane]);
        }
    }
    return race.winner;
}

// Where the prefix in falling order ends that top-k and top-p leave.
struct Edge {
    float weight;    // of the last token that stays
    int64_t equals;  // how many tokens of this weight do, those of the lowest ids
};

// At most `most` tokens, while those before weigh at most `limit`. Weights are put into bins by their upper bits, and only those
// of the bin in which the end falls are sorted, in `ordered`.
Edge edge_of(const float* found, int64_t count, int64_t most, double limit, float* ordered, Bins& bins) {
    std::memset(&bins, 0, sizeof bins);
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t bin = bin_of(found[i]);
        bins.sums[bin] += static_cast<double>(found[i]);
        ++bins.counts[bin];
    }
    double before = 0.0;
    int64_t kept = 0;
    for (int64_t bin = kBins - 1; bin >= 0; --bin) {
        if (bins.counts[bin] == 0) continue;
        if (kept + bins.counts[bin] < most && before + bins.sums[bin] <= limit) {
            before += bins.sums[bin];
            kept += bins.counts[bin];
            continue;
        }
        int64_t here = 0;
        for (int64_t i = 0; i < count; ++i) {
            if (bin_of(found[i]) == bin) ordered[here++] = found[i];
        }
        std::sort(ordered, ordered + here, std::greater<float>());
        int64_t taken = 0;
        while (taken < here && kept + taken < most && before <= limit) before += static_cast<double>(ordered[taken++]);
        const float edge = ordered[taken - 1];  // there is one: the bin above ended below both limits
        return {edge, taken - (std::lower_bound(ordered, ordered + taken, edge, std::greater<float>()) - ordered)};
    }
    return {0.0f, 0};
}

int64_t race_of_tops(const float* weights, int64_t vocab, double total, const Draw& draw, float* scratch) {
    const int64_t room = vocab + kBlock;
    float *found = scratch, *ordered = scratch + room;
    int32_t* ids = reinterpret_cast<int32_t*>(scratch + 2 * room);
    Bins& bins = *reinterpret_cast<Bins*>(reinterpret_cast<uintptr_t>(scratch + 3 * room + 15) & ~uintptr_t{63});
    const bool tops = draw.top_k < vocab || draw.top_p < 1.0f;
    const double limit = draw.top_p < 1.0f ? total * static_cast<double>(draw.top_p) : INFINITY;
    int64_t count = 0;
    Edge edge{0.0f, 0};
    if (!tops) {
        count = gather(weights, vocab, draw.min_p, ids, found);
    } else {
        for (float least : kLeast) {
            count = gather(weights, vocab, least, ids, found);
            double of_these = 0.0;
            for (int64_t i = 0; i < count; ++i) of_these += static_cast<double>(found[i]);
            if (count > draw.top_k || of_these > limit * (1.0 + kDoubt)) break;
        }
        edge = edge_of(found, count, draw.top_k, limit, ordered, bins);
    }
    Race race{draw.stream};
    for (int64_t i = 0; i < count; ++i) {
        if (found[i] < edge.weight || (found[i] == edge.weight && edge.equals-- <= 0)) continue;
        if (found[i] >= draw.min_p) race.enter(ids[i], found[i]);
    }
    return race.winner;
}

int64_t draw(const float* logits, int64_t vocab, int64_t heaviest, const Draw& parameters, void* scratch) {
    float* weights = static_cast<float*>(scratch);
    const float temperature = std::max(parameters.temperature, 1.17549435e-38f);
    const double total = weigh(logits, vocab, logits[heaviest], temperature, weights);
    if (parameters.top_k >= vocab && parameters.top_p >= 1.0f && parameters.min_p <= 0.0f) {
        return race_of_all(weights, vocab, heaviest, parameters.stream);
    }
    return race_of_tops(weights, vocab, total, parameters, weights + vocab + kBlock);
}

}  // namespace

void register_drawing(Kernels& kernels) { kernels.drawing.draw = draw; }

}  // namespace jf::JF_NAMESPACE
