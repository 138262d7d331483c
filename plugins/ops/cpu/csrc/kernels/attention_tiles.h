// A tile of keys and one of values, gathered from where they lie and packed for the products, and the products themselves.
//
// Both products are C[queries, n] = A[queries, depth] * B[depth, n]: the scores with B the keys of a tile, transposed; the
// result with B its values. What a step of depth holds is a type of arithmetic: one float, or (with bfloat16 dot products) a
// pair of bfloat16 in 32 bits.
#pragma once

#include "kernels/attention.h"
#include "kernels/attention_vec.h"

namespace jf::JF_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kRows = 6, kColumns = 4;  // C in registers: kRows x kColumns vectors of the 32
#else
constexpr int kRows = 6, kColumns = 2;  // of 16
#endif

// Any dtype, multiplied as float.
struct Floats {
    static constexpr int kPack = 1;   // numbers in one step of depth
    static constexpr int kPad = kLanes;  // sums are padded to whole blocks of so many
    static constexpr bool kRough = false;  // weights are kept as they are
    using Unit = float;
    static Vf multiply_add(Vf sum, Unit a, Vf b) { return all(a) * b + sum; }
};

#if defined(__AVX512BF16__)
struct Pairs {
    static constexpr int kPack = 2, kPad = 32;
    static constexpr bool kRough = true;  // weights are rounded to 8 bits
    using Unit = uint32_t;
    static Vf multiply_add(Vf sum, Unit a, Vf b) {
        return as<Vf>(_mm512_dpbf16_ps(as<__m512>(sum), as<__m512bh>(_mm512_set1_epi32(a)), as<__m512bh>(b)));
    }
};
#endif

template <class Op, int R, int N>
inline void product(float* c, int64_t ldc, const typename Op::Unit* a, int64_t lda, const float* b, int64_t ldb, int depth,
                    bool add) {
    Vf sums[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) sums[r][n] = Vf{};
    }
    for (int d = 0; d < depth; ++d) {
        Vf columns[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) columns[n] = load<Vf>(b + d * ldb + n * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const auto step = a[r * lda + d];
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sums[r][n] = Op::multiply_add(sums[r][n], step, columns[n]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            float* const to = c + r * ldc + n * kLanes;
            store(to, add ? load<Vf>(to) + sums[r][n] : sums[r][n]);
        }
    }
}

template <class Op, int R>
void product_of_rows(float* c, int64_t ldc, const typename Op::Unit* a, int64_t lda, const float* b, int64_t ldb,
                     int depth, int columns, bool add) {
    int n = 0;
    for (; n + kColumns <= columns; n += kColumns) {
        product<Op, R, kColumns>(c + n * kLanes, ldc, a, lda, b + n * kLanes, ldb, depth, add);
    }
    c += n * kLanes, b += n * kLanes;
    switch (columns - n) {
        case 1: return product<Op, R, 1>(c, ldc, a, lda, b, ldb, depth, add);
        case 2: return product<Op, R, 2>(c, ldc, a, lda, b, ldb, depth, add);
        case 3: return product<Op, R, 3>(c, ldc, a, lda, b, ldb, depth, add);
    }
}

// rows: at most kRows; columns: vectors
template <class Op>
inline void multiply(int rows, float* c, int64_t ldc, const typename Op::Unit* a, int64_t lda, const float* b, int64_t ldb,
                     int depth, int columns, bool add) {
    static_assert(kRows == 6);
    switch (rows) {
        case 1: return product_of_rows<Op, 1>(c, ldc, a, lda, b, ldb, depth, columns, add);
        case 2: return product_of_rows<Op, 2>(c, ldc, a, lda, b, ldb, depth, columns, add);
        case 3: return product_of_rows<Op, 3>(c, ldc, a, lda, b, ldb, depth, columns, add);
        case 4: return product_of_rows<Op, 4>(c, ldc, a, lda, b, ldb, depth, columns, add);
        case 5: return product_of_rows<Op, 5>(c, ldc, a, lda, b, ldb, depth, columns, add);
        case 6: return product_of_rows<Op, 6>(c, ldc, a, lda, b, ldb, depth, columns, add);
    }
}

// The vectors of a tile that follows are asked for while this one is packed: pages lie apart, and no prefetcher guesses where.
template <class T>
inline void ask_for(const T* vector, int size) {
    for (int i = 0; i < size; i += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(vector + i, 0, 2);
}

// Keys of n vectors -> tile[step of head][kKeyTile]. Columns up to the next whole vector are 0. left: keys of this work from
// here on, units of all of which are known.
template <class T>
inline void pack_keys(Floats, const T* keys, const uint32_t* units, int n, int left, int head, float* tile) {
    for (int first = 0; first < n; first += kLanes) {
        for (int d = 0; d < head; d += kLanes) {
            Vu rows[kLanes];
            for (int i = 0; i < kLanes; ++i) {
                rows[i] = first + i < n
                              ? as<Vu>(to_floats(keys + static_cast<int64_t>(units[first + i]) * head + d, head - d))
                              : Vu{};
            }
            transpose(rows);
            const int steps = head - d < kLanes ? head - d : kLanes;
            for (int i = 0; i < steps; ++i) store(tile + (d + i) * kKeyTile + first, rows[i]);
        }
        for (int i = first; i < first + kLanes && i + kKeyTile < left; ++i) {
            ask_for(keys + static_cast<int64_t>(units[i + kKeyTile]) * head, head);
        }
    }
}

// Values of n vectors -> tile[step of keys][padded]; padded: v_head up to the next whole vector, filled with 0.
template <class T>
inline void pack_values(Floats, const T* values, const uint32_t* units, int n, int left, int v_head, int padded,
                        float* tile) {
    for (int i = 0; i < n; ++i) {
        const T* row = values + static_cast<int64_t>(units[i]) * v_head;
        for (int d = 0; d < v_head; d += kLanes) store(tile + i * padded + d, to_floats(row + d, v_head - d));
        if (i + kKeyTile < left) ask_for(values + static_cast<int64_t>(units[i + kKeyTile]) * v_head, v_head);
    }
}

// Sums d to d + kLanes of a query, d a multiple of kLanes.
inline Vf in_order(Floats, const float* sums, int d) { return load<Vf>(sums + d); }

template <class T>
inline void pack_query(Floats, const T* query, int head, float* to) {
    for (int d = 0; d < head; d += kLanes) store(to + d, to_floats(query + d, head - d));
}

#if defined(__AVX512BF16__)
inline __mmask32 first_of_32(int n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1; }

inline void pack_keys(Pairs, const bf16_t* keys, const uint32_t* units, int n, int left, int head, float* tile) {
    for (int first = 0; first < n; first += kLanes) {
        for (int d = 0; d < head; d += 32) {
            const __mmask32 mask = first_of_32(head - d);
            Vu rows[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                rows[i] = first + i < n ? as<Vu>(_mm512_maskz_loadu_epi16(
                                              mask, keys + static_cast<int64_t>(units[first + i]) * head + d))
                                        : Vu{};
            }
            transpose(rows);
            const int steps = head - d < 32 ? (head - d + 1) / 2 : 16;
            for (int i = 0; i < steps; ++i) store(tile + (d / 2 + i) * kKeyTile + first, rows[i]);
        }
        for (int i = first; i < first + kLanes && i + kKeyTile < left; ++i) {
            ask_for(keys + static_cast<int64_t>(units[i + kKeyTile]) * head, head);
        }
    }
}

// Cheap shuffles work in quarters of a vector: of 32 sums, those of numbers 0-3, 8-11, 16-19 and 24-27 come first.
inline void pack_values(Pairs, const bf16_t* values, const uint32_t* units, int n, int left, int v_head, int padded,
                        float* tile) {
    for (int i = 0; i < n; i += 2) {
        const bf16_t* even = values + static_cast<int64_t>(units[i]) * v_head;
        const bf16_t* odd = i + 1 < n ? values + static_cast<int64_t>(units[i + 1]) * v_head : nullptr;
        float* to = tile + i / 2 * padded;
        for (int d = 0; d < v_head; d += 32) {
            const __mmask32 mask = first_of_32(v_head - d);
            const __m512i a = _mm512_maskz_loadu_epi16(mask, even + d);
            const __m512i b = odd == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, odd + d);
            _mm512_storeu_si512(to + d, _mm512_unpacklo_epi16(a, b));
            _mm512_storeu_si512(to + d + 16, _mm512_unpackhi_epi16(a, b));
        }
        for (int j = i + kKeyTile; j < i + kKeyTile + 2 && j < left; ++j) {
            ask_for(values + static_cast<int64_t>(units[j]) * v_head, v_head);
        }
    }
}

inline Vf in_order(Pairs, const float* sums, int d) {
    const float* const block = sums + d / 32 * 32;
    const int64_t first = d % 32 / 4;
    const __m512i from = _mm512_add_epi64(_mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), _mm512_set1_epi64(first));
    return as<Vf>(_mm512_permutex2var_epi64(_mm512_loadu_si512(block), from, _mm512_loadu_si512(block + 16)));
}

inline void pack_query(Pairs, const bf16_t* query, int head, uint32_t* to) {
    for (int d = 0; d < head; d += 32) {
        _mm512_storeu_si512(to + d / 2, _mm512_maskz_loadu_epi16(first_of_32(head - d), query + d));
    }
}
#endif

}  // namespace
}  // namespace jf::JF_NAMESPACE
