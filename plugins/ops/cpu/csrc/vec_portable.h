// V in four vectors of the compiler's, which any processor family has. Included by vec.h alone.
#pragma once

namespace jf::JF_NAMESPACE {

typedef float Four __attribute__((vector_size(16)));
typedef uint32_t FourBits __attribute__((vector_size(16)));

struct V {
    Four part[4];
};

#define JF_EACH(i) for (int i = 0; i < 4; ++i)

inline V set1(float x) {
    V all;
    JF_EACH(i) all.part[i] = Four{x, x, x, x};
    return all;
}
inline V load(const float* at) {
    V all;
    std::memcpy(&all, at, sizeof all);
    return all;
}
template <class T>
V load_narrow(const T* at) {
    float some[16];
    for (int i = 0; i < 16; ++i) some[i] = to_float(at[i]);
    return load(some);
}
inline V load(const bf16_t* at) { return load_narrow(at); }
inline V load(const f16_t* at) { return load_narrow(at); }
inline void store(float* at, V a) { std::memcpy(at, &a, sizeof a); }
template <class T>
void store_narrow(T* at, V a) {
    float some[16];
    store(some, a);
    for (int i = 0; i < 16; ++i) at[i] = from_float<T>(some[i]);
}
inline void store(bf16_t* at, V a) { store_narrow(at, a); }
inline void store(f16_t* at, V a) { store_narrow(at, a); }
// Elements 0, 2, 4 ... and 1, 3, 5 ... of 32.
inline void load_pairs(const bf16_t* at, V& even, V& odd) {
    JF_EACH(i) {
        FourBits both;
        std::memcpy(&both, at + 8 * i, sizeof both);
        even.part[i] = reinterpret_cast<Four>(both << 16);
        odd.part[i] = reinterpret_cast<Four>(both & 0xffff0000u);
    }
}

inline V operator+(V a, V b) {
    JF_EACH(i) a.part[i] += b.part[i];
    return a;
}
inline V operator-(V a, V b) {
    JF_EACH(i) a.part[i] -= b.part[i];
    return a;
}
inline V operator*(V a, V b) {
    JF_EACH(i) a.part[i] *= b.part[i];
    return a;
}
inline V operator/(V a, V b) {
    JF_EACH(i) a.part[i] /= b.part[i];
    return a;
}
inline V fma_(V a, V b, V c) {
    JF_EACH(i) c.part[i] += a.part[i] * b.part[i];
    return c;
}
// Of a NaN and a number: b.
inline V max_(V a, V b) {
    JF_EACH(i) a.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
    return a;
}
inline V min_(V a, V b) {
    JF_EACH(i) a.part[i] = a.part[i] < b.part[i] ? a.part[i] : b.part[i];
    return a;
}
inline V abs_(V a) {
    JF_EACH(i) a.part[i] = reinterpret_cast<Four>(reinterpret_cast<FourBits>(a.part[i]) & 0x7fffffffu);
    return a;
}
inline V nearest(V a) {
    JF_EACH(i) for (int j = 0; j < 4; ++j) a.part[i][j] = std::nearbyintf(a.part[i][j]);
    return a;
}
// 2^a of whole numbers -126 .. 127.
inline V power_of_two(V a) {
    JF_EACH(i) for (int j = 0; j < 4; ++j) {
        a.part[i][j] = as_float(static_cast<uint32_t>(static_cast<int32_t>(a.part[i][j]) + 127) << 23);
    }
    return a;
}
// 0 where x < bound, else a; a NaN of x stays one.
inline V zero_below(V x, float bound, V a) {
    JF_EACH(i) for (int j = 0; j < 4; ++j) {
        const float value = x.part[i][j];
        a.part[i][j] = value != value ? value : value < bound ? 0.0f : a.part[i][j];
    }
    return a;
}
// a with the sign of b.
inline V copy_sign(V a, V b) {
    JF_EACH(i) {
        const FourBits sign = reinterpret_cast<FourBits>(b.part[i]) & 0x80000000u;
        a.part[i] = reinterpret_cast<Four>((reinterpret_cast<FourBits>(a.part[i]) & 0x7fffffffu) | sign);
    }
    return a;
}
inline float sum(V a) {
    const Four four = (a.part[0] + a.part[1]) + (a.part[2] + a.part[3]);
    return (four[0] + four[1]) + (four[2] + four[3]);
}
inline float largest(V a) {
    float best = a.part[0][0];
    JF_EACH(i) for (int j = 0; j < 4; ++j) best = a.part[i][j] > best ? a.part[i][j] : best;
    return best;
}

#undef JF_EACH

}  // namespace jf::JF_NAMESPACE
