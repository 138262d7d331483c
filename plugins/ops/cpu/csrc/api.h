// The C interface, which Python calls with raw pointers. Nothing in it throws, keeps a pointer beyond the call (but to what it
// made itself), or checks shapes: its callers in jackfield_ops_cpu do.
#pragma once

#include <cstdint>

#define JF_API extern "C" __attribute__((visibility("default")))

// Digest of the sources that this library was built from.
JF_API const char* jf_digest();
// Name of the level in use.
JF_API const char* jf_level();
// Use another level, for everything after; 0: unknown, or this processor or library does not have it.
JF_API int jf_use_level(const char* name);

// Greedy sampling: logits float32 [n, vocab], rows stride floats apart -> tokens int64 [n]; see Kernels::arg_max.
JF_API void jf_arg_max(const float* logits, int64_t n, int64_t vocab, int64_t stride, int64_t* tokens, int threads);
