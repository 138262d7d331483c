// The C interface, which Python calls with raw pointers. Nothing in it throws, keeps a pointer beyond the call (but to what it
// made itself), or checks shapes: its callers in jackfield_ops_cpu do.
#pragma once

#include <cstdint>

#include "blocks.h"
#include "rows.h"
#include "weight.h"

#define JF_API extern "C" __attribute__((visibility("default")))

// Digest of the sources that this library was built from.
JF_API const char* jf_digest();
// Name of the level in use.
JF_API const char* jf_level();
// Use another level, for everything after; 0: unknown, or this processor or library does not have it.
JF_API int jf_use_level(const char* name);

// Greedy sampling: logits float32 [n, vocab], rows stride floats apart -> tokens int64 [n]; see Kernels::arg_max.
JF_API void jf_arg_max(const float* logits, int64_t n, int64_t vocab, int64_t stride, int64_t* tokens, int threads);

// Plain weights [rows, columns], stride elements apart, into tiles (form kF32, kBf16 or kF16). out: whole tiles of columns rounded
// up to the form's step (2 for kBf16).
JF_API void jf_pack_dense(const void* plain, int32_t form, int64_t rows, int64_t columns, int64_t stride, void* out, int threads);
// Rows of a table of these forms; ids must be within it. out has the table's element type.
JF_API void jf_look_up_dense(const jf::Weight* table, const int64_t* ids, int64_t n, void* out, int threads);
// out [n, rows] = x [n, columns] @ weight.T + bias, in out_scalar, which bias (null: none) has too.
JF_API void jf_linear(const jf::Weight* weight, const void* x, int32_t scalar, int64_t n, int64_t stride, const void* bias, void* out,
                      int32_t out_scalar, int threads);
// sum = x + residual, out = norm(sum), all [n, size]; without a residual (null) there is no sum.
JF_API void jf_norm(const void* x, const void* residual, void* sum, void* out, int32_t scalar, const jf::Norm* norm, int64_t n,
                    int64_t size, int threads);
// Rows of a table; ids must be within it.
JF_API void jf_embedding(const int64_t* ids, int64_t n, const void* table, int64_t row_bytes, void* out, int threads);
// Ops.pre_attention. residual null: there is none, and sum is not written. cos, sin float32 [n, half], rows angles apart; null: none.
JF_API void jf_pre_attention(const jf::PreBlock* block, int64_t n, const void* x, const void* residual, void* sum, const float* cos,
                             const float* sin, int64_t angles, int64_t half, void* q, void* k, void* v, int threads);
// Ops.post_attention, or some of its steps (see Steps): kProject in -> out; kMlp in, residual -> out, sum; kLeave in -> out; together
// the results are handed on.
JF_API void jf_post_attention(const jf::PostBlock* block, int32_t steps, int64_t n, const void* in, const void* residual, void* out,
                              void* sum, int threads);

// Quantised weights, in the forms of quant.h. Bytes of one:
JF_API int64_t jf_quantized_bytes(int32_t form, int64_t rows, int64_t columns);
// GGUF blocks [rows], stride bytes apart, columns whole blocks -> form kQ8_0, kQ4_0, kQ4_1, kQ4K or kQ6K.
JF_API void jf_pack_quantized(const uint8_t* blocks, int32_t form, int64_t rows, int64_t columns, int64_t stride, uint8_t* out,
                              int threads);
// Plain weights of form kF32, kBf16 or kF16, stride elements apart -> kInt8. Gives -1, or a row that is not finite.
JF_API int64_t jf_pack_int8(const void* plain, int32_t form, int64_t rows, int64_t columns, int64_t stride, uint8_t* out,
                            int threads);
// Rows of a quantised table, decoded -> out [n, columns] in scalar; ids must be within it.
JF_API void jf_look_up(const jf::Weight* table, const int64_t* ids, int64_t n, void* out, int32_t scalar, int threads);
// All bits of memory or-ed together (whole 256 bytes): a plain reading loop, for measurements.
JF_API int64_t jf_read(const uint8_t* data, int64_t bytes, int threads);
