// Rows out of a plain table in tiles, bit for bit as they were packed.
#include <cstring>

#include "api.h"
#include "team.h"
#include "weight.h"

namespace jf {
namespace {

// Steps of a row lie one tile's width apart; T is one step of it (a bfloat16 pair).
template <class T>
void row_of(const Weight& table, int64_t id, uint8_t* out) {
    const int64_t step = sizeof(T), columns = table.columns * (table.form == kF32 ? 4 : 2);
    const int64_t steps = (columns + step - 1) / step;
    const uint8_t* from = table.data + id / kTile * steps * kTile * step + id % kTile * step;
    const int64_t whole = columns / step;
    for (int64_t s = 0; s < whole; ++s) std::memcpy(out + s * step, from + s * kTile * step, sizeof(T));
    std::memcpy(out + whole * step, from + whole * kTile * step, static_cast<size_t>(columns - whole * step));
}

}  // namespace
}  // namespace jf

void jf_look_up_dense(const jf::Weight* table, const int64_t* ids, int64_t n, void* out, int threads) {
    const int64_t row_bytes = table->columns * (table->form == jf::kF32 ? 4 : 2);
    jf::share_out(n, n * table->columns, threads, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            uint8_t* to = static_cast<uint8_t*>(out) + i * row_bytes;
            if (table->form == jf::kF16) {
                jf::row_of<uint16_t>(*table, ids[i], to);
            } else {
                jf::row_of<uint32_t>(*table, ids[i], to);
            }
        }
    });
}
