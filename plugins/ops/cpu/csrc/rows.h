// What is done to rows between products. Element types are those of the run; every result is rounded to it where plain torch
// would round it.
#pragma once

#include <cstdint>

#include "weight.h"

namespace jf {

// jackfield_ops_cpu/blocks.py has the same numbers.
enum Activation : int32_t { kSilu = 0, kGelu = 1, kGeluTanh = 2, kRelu = 3 };

// An RMS norm. weight null: there is none. Its element type is the run's, or float32 (one with an offset).
struct Norm {
    const void* weight;
    int32_t scalar;
    float eps;
};

struct RowKernels {
    // sum = x + residual, normed = norm(sum). Without a residual (null) the sum is x, and `sum` is not written. normed may be x.
    void (*norm)(const void* x, const void* residual, void* sum, void* normed, Scalar scalar, const Norm& norm, int64_t size);
    // out = product + bias; bias null: none.
    void (*finish)(const float* product, const void* bias, void* out, Scalar scalar, int64_t size);
    // out = activation(gate + its bias) * (up + its bias); biases null: none.
    void (*gate)(const float* gate, const float* up, const void* gate_bias, const void* up_bias, void* out, Scalar scalar,
                 Activation activation, int64_t size);
    // In place: turns element i of the first half with element i of the second, i < half.
    void (*rotate)(void* x, const float* cos, const float* sin, Scalar scalar, int64_t half);
};

inline int64_t bytes_of(Scalar scalar) { return scalar == kFloat32 ? 4 : 2; }

// The element at an index, in bytes from a base of any element type.
inline const void* at(const void* base, int64_t index, Scalar scalar) {
    return static_cast<const uint8_t*>(base) + index * bytes_of(scalar);
}
inline void* at(void* base, int64_t index, Scalar scalar) {
    return static_cast<uint8_t*>(base) + index * bytes_of(scalar);
}

}  // namespace jf
