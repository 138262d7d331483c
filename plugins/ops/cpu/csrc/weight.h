// A packed weight, and what a form of packing must bring to be multiplied. Drivers know weights by this alone.
#pragma once

#include <cstdint>

namespace jf {

// Element types of activations; jackfield_ops_cpu/weights.py has the same numbers.
enum Scalar : int32_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

// How a weight is packed. jackfield_ops_cpu/weights.py has the same numbers.
enum Form : int32_t {
    kF32 = 0,
    kBf16 = 1,
    kF16 = 2,
    kQ8_0 = 3,
    kQ4_0 = 4,
    kQ4_1 = 5,
    kQ4K = 6,
    kQ6K = 7,
    kInt8 = 8,
    kMixed = 9,  // parts in several of the packed forms
    kForms = 10
};

// Output rows of a tile. All that one tile needs lies together, and tiles lie one after another, so that whoever multiplies a
// range of them reads memory once, forward.
constexpr int64_t kTile = 16;

struct Weight {
    int32_t form;
    int32_t flags;  // free for the form
    int64_t rows;  // outputs, without the padding of the last tile
    int64_t columns;  // inputs
    const uint8_t* data;  // aligned to 64 bytes
};

inline int64_t tiles_of(int64_t rows) { return (rows + kTile - 1) / kTile; }

// One form's kernels at one level. They are called inside Pool::run, by each thread on tiles of its own; no buffer is kept.
struct LinearKernels {
    // Size of what prepare makes of n rows; 0: nothing need be prepared, multiply reads the rows as they are.
    int64_t (*prepared_bytes)(int64_t columns, int64_t n, Scalar scalar);
    // Rows x [n, columns], ldx elements apart, into the form that multiply reads. prepared is aligned to 64 bytes.
    void (*prepare)(const void* x, Scalar scalar, int64_t n, int64_t ldx, int64_t columns, void* prepared);
    // Size of what multiply needs for itself; 0: nothing.
    int64_t (*scratch_bytes)(int64_t columns, int64_t n);
    // out[i * ldo + row - 16 * first_tile] = x[i] . weight[row], float32, for whole tiles: rows of padding are written too.
    // x: what prepare made, with ldx = 0; or the rows themselves, ldx elements apart, where there is nothing to prepare.
    void (*multiply)(const Weight& weight, const void* x, int64_t ldx, int64_t n, int64_t first_tile, int64_t last_tile,
                     float* out, int64_t ldo, void* scratch);
};

}  // namespace jf
