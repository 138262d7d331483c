// The files of quantised kernels at one level, for each other. Functions have the arguments of the members of LinearKernels.
#pragma once

#include "weight.h"

namespace jf::JF_NAMESPACE {

// quant_few.cpp: any number of rows is right, few are fast.
int64_t few_bytes(int64_t columns, int64_t n);
void prepare_few(const void* x, Scalar scalar, int64_t n, int64_t ldx, int64_t columns, void* prepared);
void multiply_few(const Weight& weight, const void* prepared, int64_t n, int64_t first, int64_t last, float* out, int64_t ldo);

// quant_decode.cpp: one tile in the plain form kBf16 (only where kDecodesToBf16) or kF32.
#if defined(__AVX512BF16__)
constexpr bool kDecodesToBf16 = true;
#else
constexpr bool kDecodesToBf16 = false;
#endif
void decode_tile(const Weight& weight, int64_t tile, Form form, uint8_t* to);

// quant_int8.cpp: int8 weights with int8 activations; only where kInt8Products.
#if defined(__AVX512VNNI__)
constexpr bool kInt8Products = true;
#else
constexpr bool kInt8Products = false;
#endif
int64_t int8_bytes(int64_t columns, int64_t n);
void prepare_int8(const void* x, Scalar scalar, int64_t n, int64_t ldx, int64_t columns, void* prepared);
void multiply_int8(const Weight& weight, const void* prepared, int64_t n, int64_t first, int64_t last, float* out, int64_t ldo);

}  // namespace jf::JF_NAMESPACE
