// What stands before and after attention as one member of a team does it, for the drivers of single blocks and of whole layers.
#pragma once

#include "blocks.h"
#include "team.h"

namespace jf {

class NewKeyValues;

// So few rows that every thread of a team norms them all, which saves a barrier.
constexpr int64_t kRowsForEach = 4;

inline bool each_norms_all(const Team& team, int64_t n) { return team.size > 1 && n <= kRowsForEach; }

// own: where each member norms all rows, x, residual and sum are this member's alone; else they are the team's, and one writes.
// slots: where heads of keys and values go too, by the member that made them; null: nowhere.
struct PreCall {
    const PreBlock& block;
    const void *x, *residual;
    void* sum;
    const float *cos, *sin;  // null: no rotary
    int64_t angles, half;  // elements between two tokens' angles; dimensions that turn, halved
    void *q, *k, *v;
    bool own = false;
    const NewKeyValues* slots = nullptr;
};

// own: as above, of residual, out and sum.
struct PostCall {
    const PostBlock& block;
    int32_t steps;
    const void *in, *residual;
    void *out, *sum;
    bool own = false;

    Scalar scalar() const { return static_cast<Scalar>(block.scalar); }
    int64_t hidden() const { return block.o->rows; }
    int64_t inner() const { return block.down->columns; }
    bool does(Steps step) const { return (steps & step) != 0; }
};

// Bytes of what the members have in common, and their work on rows first to first + n. When it returns, other members may still be
// at theirs.
int64_t shared_bytes(const PreBlock& block, int64_t n);
int64_t shared_bytes(const PostBlock& block, int64_t n);
void before_attention(const PreCall& call, const Team& team, int64_t first, int64_t n, uint8_t* shared);
void after_attention(const PostCall& call, const Team& team, int64_t first, int64_t n, uint8_t* shared);

}  // namespace jf
