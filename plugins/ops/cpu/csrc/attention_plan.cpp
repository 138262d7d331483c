#include "attention_plan.h"

#include <algorithm>
#include <cstring>

#include "dispatch.h"

namespace jf {
namespace {

constexpr int kLeastShared = 64;      // tokens: a shorter common prefix is not worth a pass of its own
constexpr int kFewQueries = 64;       // a row with more query vectors a key/value head gains nothing by company
constexpr int kItemsPerThread = 4;    // so that threads end at about the same time
constexpr int kPackingCost = 12;      // a key's packing costs as much as its products with so many queries

// How many of n slots two tables have in common from their beginning on.
int common(const int32_t* a, const int32_t* b, int n) {
    constexpr int kStep = 64;
    int at = 0;
    while (at + kStep <= n && std::memcmp(a + at, b + at, kStep * sizeof(int32_t)) == 0) at += kStep;
    while (at < n && a[at] == b[at]) ++at;
    return at;
}

}  // namespace

void AttentionSchedule::make(const AttentionRows& batch, const JfAttentionKind& kind, const JfAttentionGroup& group,
                             int threads) {
    queries.clear(), blocks.clear(), items.clear(), merges.clear(), parts.clear(), units.clear(), rows_.clear();
    partials = keys = shared_passes = shared_tokens = 0;
    const int share_of = kind.heads / kind.kv_heads;
    std::vector<int> members;
    for (int i = 0; i < batch.n; ++i) {
        const int tokens = batch.starts[i + 1] - batch.starts[i];
        if (tokens == 0) continue;
        const Row row{group.table + batch.rows[i] * group.stride, batch.starts[i], tokens, batch.kv_lens[i], 0};
        const bool from_start = kind.window == 0 || row.cached() < kind.window;
        if (from_start && row.cached() >= kLeastShared && tokens * share_of < kFewQueries) {
            members.push_back(static_cast<int>(rows_.size()));
        }
        rows_.push_back(row);
    }
    if (members.size() > 1) share(members, 0, kind, group);

    // Large blocks pack their keys less often; several for each thread keep all of them busy.
    int64_t vectors = 0;
    for (const Row& row : rows_) vectors += static_cast<int64_t>(row.tokens) * share_of * kind.kv_heads;
    const int64_t even = vectors / (threads * 2 * kItemsPerThread);
    const int most = static_cast<int>(std::clamp<int64_t>(even, 48, kMostQueries));
    for (const Row& row : rows_) add_blocks(row, kind, group, std::max(1, most / share_of));
    split(kind, threads);
    find_merges(batch.starts[batch.n]);
}

// Passes over the keys from `begin` on that at least two of these rows have in common, then over what some of those rows share
// beyond.
void AttentionSchedule::share(std::vector<int>& members, int begin, const JfAttentionKind& kind,
                              const JfAttentionGroup& group) {
    const int most = std::max(1, kMostQueries / (kind.heads / kind.kv_heads));
    std::vector<int> together, apart;
    while (members.size() > 1) {
        const Row first = rows_[members[0]];
        together.assign(1, members[0]);
        apart.clear();
        int end = first.cached();
        for (size_t i = 1; i < members.size(); ++i) {
            const Row& row = rows_[members[i]];
            const int limit = std::min(first.cached(), row.cached()) - begin;
            int same = 0;
            if (limit >= kLeastShared && first.table[begin + kLeastShared - 1] == row.table[begin + kLeastShared - 1]) {
                same = common(first.table + begin, row.table + begin, limit);
            }
            if (same >= kLeastShared) {
                end = std::min(end, begin + same);
                together.push_back(members[i]);
            } else {
                apart.push_back(members[i]);
            }
        }
        if (together.size() > 1) {
            const int64_t at = add_units(first, begin, end, group);
            AttentionBlock block{};
            for (const int member : together) {
                Row& row = rows_[member];
                if (block.tokens == 0 || block.tokens + row.tokens > most) {
                    if (block.tokens > 0) blocks.push_back(block);
                    block = {static_cast<int32_t>(queries.size()), 0, begin, end, 0, 1, at, -1};
                }
                add_queries(row, 0, row.tokens, kind);
                block.tokens += row.tokens;
                row.own = end;
            }
            blocks.push_back(block);
            ++shared_passes;
            shared_tokens += end - begin;
            share(together, end, kind, group);
        }
        members.swap(apart);
    }
}

int64_t AttentionSchedule::add_units(const Row& row, int begin, int end, const JfAttentionGroup& group) {
    const auto at = static_cast<int64_t>(units.size());
    units.resize(at + end - begin);
    kernels().attention.units(row.table + begin, end - begin, group.page, group.kv_heads, group.head_major != 0,
                              units.data() + at);
    return at - begin;
}

void AttentionSchedule::add_queries(const Row& row, int first, int tokens, const JfAttentionKind& kind) {
    for (int i = first; i < first + tokens; ++i) {
        const int position = row.cached() + i;
        const int low = kind.window == 0 ? 0 : std::max(0, position - kind.window + 1);
        queries.push_back({row.start + i, low, kind.causal ? position + 1 : row.kv_len});
    }
}

// A row's own queries over its own keys.
void AttentionSchedule::add_blocks(const Row& row, const JfAttentionKind& kind, const JfAttentionGroup& group,
                                   int most_tokens) {
    const int low = kind.window == 0 ? 0 : std::max(0, row.cached() - kind.window + 1);
    const int64_t at = add_units(row, std::max(low, row.own), row.kv_len, group);
    for (int first = 0; first < row.tokens; first += most_tokens) {
        const int tokens = std::min(most_tokens, row.tokens - first);
        const auto query = static_cast<int32_t>(queries.size());
        add_queries(row, first, tokens, kind);
        blocks.push_back({query, tokens, std::max(queries[query].low, row.own), queries.back().high, 0, 1, at, -1});
    }
}

// Cuts blocks that would keep one thread busy while others wait, and lists the work, the largest first.
void AttentionSchedule::split(const JfAttentionKind& kind, int threads) {
    const int share_of = kind.heads / kind.kv_heads;
    const auto cost_of_key = [&](const AttentionBlock& block) -> int64_t { return block.tokens * share_of + kPackingCost; };
    int64_t total = 0;
    for (const auto& block : blocks) {
        total += (block.end - block.begin) * cost_of_key(block) * kind.kv_heads;
        keys += static_cast<int64_t>(block.end - block.begin) * kind.kv_heads;
    }
    const int64_t fair = (threads == 1 ? total : total / (threads * kItemsPerThread)) + 1;
    for (int i = 0; i < static_cast<int>(blocks.size()); ++i) {
        auto& block = blocks[i];
        const int length = block.end - block.begin, tiles = (length + kKeyTile - 1) / kKeyTile;
        const auto wanted = static_cast<int>(std::min<int64_t>(length * cost_of_key(block) / fair + 1, tiles));
        block.chunk = (tiles + wanted - 1) / wanted * kKeyTile;
        block.chunks = (length + block.chunk - 1) / block.chunk;
        for (int chunk = 0; chunk < block.chunks; ++chunk) {
            for (int head = 0; head < kind.kv_heads; ++head) items.push_back({i, head, chunk});
        }
    }
    if (threads > 1) {
        std::stable_sort(items.begin(), items.end(), [&](const AttentionItem& a, const AttentionItem& b) {
            const auto cost = [&](const AttentionBlock& block) {
                return std::min(block.chunk, block.end - block.begin) * cost_of_key(block);
            };
            return cost(blocks[a.block]) > cost(blocks[b.block]);
        });
    }
    // A token in one block that is not cut gets its result at once.
    for (auto& block : blocks) {
        bool alone = block.chunks == 1;
        for (const Row& row : rows_) {
            if (!alone || shared_passes == 0) break;
            const int token = queries[block.query].token;
            if (token >= row.start && token < row.start + row.tokens) alone = row.own == 0;
        }
        if (alone) continue;
        block.partial = partials;
        partials += static_cast<int64_t>(block.chunks) * kind.kv_heads * block.tokens * share_of;
    }
}

void AttentionSchedule::find_merges(int tokens) {
    if (partials == 0) return;
    count_.assign(tokens + 1, 0);  // first parts of each token, then ends
    for (const auto& block : blocks) {
        if (block.partial < 0) continue;
        for (int i = 0; i < block.tokens; ++i) ++count_[queries[block.query + i].token + 1];
    }
    for (int token = 0; token < tokens; ++token) {
        if (count_[token + 1] > 0) merges.push_back({token, count_[token], count_[token + 1]});
        count_[token + 1] += count_[token];
    }
    parts.resize(count_[tokens]);
    for (int i = 0; i < static_cast<int>(blocks.size()); ++i) {
        if (blocks[i].partial < 0) continue;
        for (int j = 0; j < blocks[i].tokens; ++j) parts[count_[queries[blocks[i].query + j].token]++] = {i, j};
    }
}

}  // namespace jf
