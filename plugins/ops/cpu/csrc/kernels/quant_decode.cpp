// Quantised tiles decoded into plain ones, for products of many rows.
#include "quant_kernels.h"
#include "quant_lanes.h"

namespace jf::JF_NAMESPACE {
namespace {

// Where two columns of a tile go: one after the other, or in pairs.
struct ToFloat {
    static constexpr int kBytes = 4;
    static void put(V first, V second, uint8_t* to) {
        store(reinterpret_cast<float*>(to), first);
        store(reinterpret_cast<float*>(to) + kTile, second);
    }
};

#if defined(__AVX512BF16__)
struct ToBf16 {
    static constexpr int kBytes = 2;
    static void put(V first, V second, uint8_t* to) {
        const __m512i apart = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.v, first.v));
        const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                               20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, apart));
    }
};
#endif

template <class Q, class To, int quad, int last>
inline void put_quads(const uint8_t* block, int group, V scales, V offsets, uint8_t* to, int64_t bytes) {
    if constexpr (quad < last) {
        const Codes codes = codes_of<Q, quad>(block, group);
        const auto value = [&](V code) { return fma_(code, scales, offsets); };
        constexpr int64_t kPair = 2 * kTile * To::kBytes;
        alignas(64) uint8_t spare[2 * kPair];
        uint8_t* const at = to + 2 * quad * kPair;
        uint8_t* const into = bytes >= (2 * quad + 2) * kPair ? at : spare;
        To::put(value(column<0>(codes)), value(column<1>(codes)), into);
        To::put(value(column<2>(codes)), value(column<3>(codes)), into + kPair);
        if (into == spare && bytes > 2 * quad * kPair) std::memcpy(at, spare, bytes - 2 * quad * kPair);
        put_quads<Q, To, quad + 1, last>(block, group, scales, offsets, to, bytes);
    }
}

template <class Q, class To, int part>
inline void put_part(const uint8_t* block, int group, V factor, uint8_t* to, int64_t bytes) {
    constexpr int kEach = kQuads / kParts<Q>;
    const V scales = std::is_same_v<Q, Int8> ? factor : scales_of<Q>(block, group, part);
    V offsets = scales * set1(-Q::kZero);
    if constexpr (kHasMinima<Q>) offsets = minima_of<Q>(block, group);
    put_quads<Q, To, part * kEach, (part + 1) * kEach>(block, group, scales, offsets, to, bytes);
}

template <class Q, class To>
void decode(const Weight& weight, int64_t tile, uint8_t* to) {
    const uint8_t* at = weight.data + tile * tile_bytes<Q>(weight.columns);
    const V factor = load(reinterpret_cast<const float*>(at));  // of Int8 alone
    at += header_bytes<Q>();
    constexpr int64_t kStep = 4 / To::kBytes;
    int64_t left = (weight.columns + kStep - 1) / kStep * kStep * kTile * To::kBytes;
    for (; left > 0; at += Q::kBytes) {
        for (int group = 0; group < Q::kColumns / kGroup && left > 0; ++group) {
            put_part<Q, To, 0>(at, group, factor, to, left);
            if constexpr (kParts<Q> == 2) put_part<Q, To, 1>(at, group, factor, to, left);
            constexpr int64_t kBytes = kGroup * kTile * To::kBytes;
            to += kBytes;
            left -= kBytes;
        }
    }
}

}  // namespace

void decode_tile(const Weight& weight, int64_t tile, Form form, uint8_t* to) {
    with_form(weight.form, [&](auto q) {
#if defined(__AVX512BF16__)
        if (form == kBf16) return decode<decltype(q), ToBf16>(weight, tile, to);
#endif
        (void)form;
        return decode<decltype(q), ToFloat>(weight, tile, to);
    });
}

}  // namespace jf::JF_NAMESPACE
