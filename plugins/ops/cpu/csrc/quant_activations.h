// Activations of few rows as the quantised kernels read them: 14-bit integers under one scale for each group of 32 columns, the
// same for every form. Included by kernels alone.
//
// Rows come in bundles that one pass over the weights serves. Of a bundle of N: for each group N times 16 words (see
// quant_lanes.h), then N records. The columns are padded with zeros to whole blocks of any form.
#pragma once

#include "quant_lanes.h"

namespace jf::JF_NAMESPACE {

struct GroupRecord {
    float scale;
    int32_t total, first;  // sum of the integers, and of those of the first 16 columns
    float sum;             // of the activations
};

#if defined(__AVX512F__)
constexpr int kBundles[] = {8, 6, 4, 3, 2, 1};
#elif defined(__AVX2__)
constexpr int kBundles[] = {2, 1};  // more have no room in 16 registers
#else
constexpr int kBundles[] = {1};
#endif

// The size of the bundle in which the first of n rows goes: the least that holds all, or the largest, or the second if the largest
// left one or two.
inline int bundle_of(int64_t n) {
    int size = kBundles[0];
    for (const int one : kBundles) {
        if (one >= n) size = one;
    }
    if (kBundles[0] == 8 && n > 8 && (n % 8 == 1 || n % 8 == 2)) size = 6;
    return size;
}

constexpr int64_t group_bytes(int bundle) { return bundle * (kQuads * 8 + static_cast<int64_t>(sizeof(GroupRecord))); }

inline int64_t groups_of(int64_t columns) { return (columns + kMostColumns - 1) / kMostColumns * (kMostColumns / kGroup); }

inline int64_t few_rows_bytes(int64_t columns, int64_t n) {
    int64_t total = 0;
    for (int bundle; n > 0; n -= bundle) {
        bundle = bundle_of(n);
        total += groups_of(columns) * group_bytes(bundle);
    }
    return total;
}

constexpr float kLargest = 8191;  // upper half at most 64 in steps of 128

#if defined(__AVX512VNNI__)

// Whole numbers -> their words; gives their sum.
inline int32_t put_words(V numbers, int32_t* words) {
    const __m512i whole = _mm512_cvtps_epi32(numbers.v);
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(64)), 7);
    const __m512i lower = _mm512_sub_epi32(whole, _mm512_slli_epi32(upper, 7));
    const __m128i up = _mm512_cvtepi32_epi8(upper), low = _mm512_cvtepi32_epi8(lower);
    auto* to = reinterpret_cast<__m128i*>(words);
    _mm_storeu_si128(to, _mm_unpacklo_epi32(up, low));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi32(up, low));
    return _mm512_reduce_add_epi32(whole);
}

#else

inline int32_t put_words(V numbers, int32_t* words) {
    float values[kLanes];
    store(values, nearest(numbers));
    int16_t ordered[kLanes];
    int32_t total = 0;
    for (int quad = 0; quad < kLanes / 4; ++quad) {
        const int16_t a = static_cast<int16_t>(values[4 * quad]), b = static_cast<int16_t>(values[4 * quad + 1]);
        const int16_t c = static_cast<int16_t>(values[4 * quad + 2]), d = static_cast<int16_t>(values[4 * quad + 3]);
        ordered[4 * quad] = a;
        ordered[4 * quad + 1] = c;
        ordered[4 * quad + 2] = b;
        ordered[4 * quad + 3] = d;
        total += a + b + c + d;
    }
    std::memcpy(words, ordered, sizeof ordered);
    return total;
}

#endif

inline void prepare_group(V first, V second, int32_t* words, GroupRecord* record) {
    const float most = largest(max_(abs_(first), abs_(second)));
    // max_ may lose a NaN; this is one for every row that is not finite
    const float sound = sum((first + second) * set1(0.0f));
    if (!(sound == 0.0f) || most == INFINITY) {
        std::memset(words, 0, kQuads * 8);
        *record = {NAN, 0, 0, NAN};
        return;
    }
    const V inverse = set1(most > 0 ? kLargest / most : 0.0f);
    record->scale = most / kLargest;
    record->first = put_words(first * inverse, words);
    record->total = record->first + put_words(second * inverse, words + kQuads);
    record->sum = record->scale * static_cast<float>(record->total);
}

template <class T>
void prepare_few_rows(const T* x, int64_t n, int64_t ldx, int64_t columns, uint8_t* to) {
    for (int bundle; n > 0; n -= bundle, x += bundle * ldx) {
        bundle = bundle_of(n);
        for (int64_t column = 0; column < groups_of(columns) * kGroup; column += kGroup, to += group_bytes(bundle)) {
            auto* words = reinterpret_cast<int32_t*>(to);
            auto* records = reinterpret_cast<GroupRecord*>(to + bundle * kQuads * 8);
            for (int row = 0; row < bundle; ++row) {
                const T* at = x + row * ldx + column;
                const int64_t left = row < n ? columns - column : 0;
                if (left >= kGroup) {
                    prepare_group(load(at), load(at + kLanes), words + 2 * kQuads * row, records + row);
                } else if (left > 0) {
                    const int most = static_cast<int>(left), half = most < kLanes ? most : kLanes;
                    prepare_group(load(at, half), load(at + half, most - half), words + 2 * kQuads * row, records + row);
                } else {
                    std::memset(words + 2 * kQuads * row, 0, kQuads * 8);
                    records[row] = {};
                }
            }
        }
    }
}

}  // namespace jf::JF_NAMESPACE
