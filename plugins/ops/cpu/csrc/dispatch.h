// Which kernels run: one table of function pointers a level, filled by the files of kernels/, chosen once by the processor.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "rows.h"
#include "weight.h"

namespace jf {

enum Level : int { kScalar = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Vnni = 3, kAvx512Bf16 = 4, kLevels = 5 };

// Every kernel that the drivers call. A group of them has a header of its own beside its file in kernels/.
struct Kernels {
    // Index of the largest of n values, the lowest of equals; -1 if one is NaN or +inf, or none is finite.
    int64_t (*arg_max)(const float* values, int64_t n);
    RowKernels rows;
    LinearKernels linear[kForms];  // of a form that nothing multiplies: null
    AttentionKernels attention;
};

// The table of a level; null for one that this library was not built with.
const Kernels* kernels_of(Level level);
// The highest level that this processor has and this library was built with.
Level best_level();
// The table in use: that of best_level(), or of what jf_use_level chose.
const Kernels& kernels();
const char* level_name(Level level);

}  // namespace jf
