#include "dispatch.h"

#include <cstring>

#include "api.h"

namespace jf {

#define JF_DECLARE(level)                 \
    namespace level_##level {             \
    void register_sampling(Kernels&);     \
    void register_rows(Kernels&);         \
    void register_dense(Kernels&);        \
    void register_quantized(Kernels&);    \
    void register_attention(Kernels&);    \
    }
#define JF_FILL(level, kernels)               \
    do {                                      \
        level_##level::register_sampling(kernels); \
        level_##level::register_rows(kernels);     \
        level_##level::register_dense(kernels);    \
        level_##level::register_quantized(kernels); \
        level_##level::register_attention(kernels); \
    } while (0)

JF_DECLARE(scalar)
#ifdef JF_X86
JF_DECLARE(avx2)
JF_DECLARE(avx512)
JF_DECLARE(avx512_vnni)
JF_DECLARE(avx512_bf16)
#endif

namespace {

const char* const kNames[kLevels] = {"scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16"};

struct Tables {
    Kernels of[kLevels] = {};
    bool built[kLevels] = {};

    Tables() {
        JF_FILL(scalar, of[kScalar]);
        built[kScalar] = true;
#ifdef JF_X86
        JF_FILL(avx2, of[kAvx2]);
        JF_FILL(avx512, of[kAvx512]);
        JF_FILL(avx512_vnni, of[kAvx512Vnni]);
        JF_FILL(avx512_bf16, of[kAvx512Bf16]);
        for (bool& one : built) one = true;
#endif
    }
};

const Tables& tables() {
    static const Tables made;
    return made;
}

bool has(Level level) {
#ifdef JF_X86
    __builtin_cpu_init();
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    switch (level) {
        case kScalar: return true;
        case kAvx2: return avx2;
        case kAvx512: return avx512;
        case kAvx512Vnni: return vnni;
        case kAvx512Bf16: return vnni && __builtin_cpu_supports("avx512bf16");
        default: return false;
    }
#else
    return level == kScalar;
#endif
}

Level& chosen() {
    static Level level = best_level();
    return level;
}

}  // namespace

const Kernels* kernels_of(Level level) { return tables().built[level] ? &tables().of[level] : nullptr; }

Level best_level() {
    int best = kScalar;
    for (int level = kScalar; level < kLevels; ++level) {
        if (tables().built[level] && has(static_cast<Level>(level))) best = level;
    }
    return static_cast<Level>(best);
}

const Kernels& kernels() { return tables().of[chosen()]; }

const char* level_name(Level level) { return kNames[level]; }

}  // namespace jf

extern "C" {

const char* jf_digest() { return JF_DIGEST; }

const char* jf_level() { return jf::kNames[jf::chosen()]; }

int jf_use_level(const char* name) {
    for (int level = 0; level < jf::kLevels; ++level) {
        if (std::strcmp(name, jf::kNames[level]) == 0) {
            if (!jf::tables().built[level] || !jf::has(static_cast<jf::Level>(level))) return 0;
            jf::chosen() = static_cast<jf::Level>(level);
            return 1;
        }
    }
    return 0;
}
}
