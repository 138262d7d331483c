// Lanes in four vectors of the compiler's, which any processor family has. Included by quant_lanes.h alone.
#pragma once

namespace jf::JF_NAMESPACE {

#define JF_EACH(i) for (int i = 0; i < 4; ++i)

typedef int32_t FourInts __attribute__((vector_size(16)));

struct Ints {
    FourInts part[4];
};
struct Codes {
    FourBits part[4];
};

inline V to_floats(Ints x) {
    V all;
    JF_EACH(i) all.part[i] = __builtin_convertvector(x.part[i], Four);
    return all;
}
template <class T>
V whole_numbers(const T* p) {
    float some[kTile];
    for (int i = 0; i < kTile; ++i) some[i] = p[i];
    return load(some);
}
inline V bytes(const uint8_t* p) { return whole_numbers(p); }
inline V signed_bytes(const uint8_t* p) { return whole_numbers(reinterpret_cast<const int8_t*>(p)); }
inline Ints spread(int32_t x) {
    Ints all;
    JF_EACH(i) all.part[i] = FourInts{x, x, x, x};
    return all;
}
inline Codes load_codes(const uint8_t* p) {
    Codes all;
    std::memcpy(&all, p, sizeof all);
    return all;
}
inline Codes low_half(Codes x) {
    JF_EACH(i) x.part[i] &= 0x0f0f0f0fu;
    return x;
}
inline Codes high_half(Codes x) {
    JF_EACH(i) x.part[i] = x.part[i] >> 4 & 0x0f0f0f0fu;
    return x;
}
// The pair of bits `which` of every byte, at bits 4 and 5.
template <int which>
Codes upper_bits(Codes x) {
    JF_EACH(i) x.part[i] = (x.part[i] >> 2 * which & 0x03030303u) << 4;
    return x;
}
inline Codes join(Codes x, Codes y) {
    JF_EACH(i) x.part[i] |= y.part[i];
    return x;
}
// Column `which` of a quad.
template <int which>
Ints column_codes(Codes x) {
    Ints all;
    JF_EACH(i) all.part[i] = reinterpret_cast<FourInts>(x.part[i] >> 8 * which & 0xffu);
    return all;
}
template <int which>
V column(Codes x) {
    return to_floats(column_codes<which>(x));
}

inline void add_products(Ints& first, Ints& second, Codes codes, const int32_t* words) {
    const auto low = [](int32_t word) { return static_cast<int32_t>(static_cast<int16_t>(word)); };
    const int32_t a0 = low(words[0]), a2 = words[0] >> 16, a1 = low(words[1]), a3 = words[1] >> 16;
    const Ints c0 = column_codes<0>(codes), c1 = column_codes<1>(codes), c2 = column_codes<2>(codes), c3 = column_codes<3>(codes);
    JF_EACH(i) first.part[i] += c0.part[i] * a0 + c2.part[i] * a2;
    JF_EACH(i) second.part[i] += c1.part[i] * a1 + c3.part[i] * a3;
}
inline Ints joined(Ints first, Ints second) {
    JF_EACH(i) first.part[i] += second.part[i];
    return first;
}

#undef JF_EACH

}  // namespace jf::JF_NAMESPACE
