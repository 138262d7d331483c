// int8 weights times int8 activations, for many rows; needs VNNI.
//
// Activations get one scale for each kChunk columns of a row, because a model's few huge activations would leave the others of
// their row no more than two or three bits. (Perplexity of SmolLM2-135M over float32's: 1.007 with 64 columns, 1.010 with 96, 1.015
// with 128; a chunk costs as much time as five more columns.) They come in blocks of kBlock rows: of each quad of columns the rows'
// four bytes follow one another. The sums of a block and kPanel tiles fill 24 registers. The compiler would spill them, so that
// loop is in assembly.
#include <cstddef>

#include "quant_kernels.h"
#include "quant_lanes.h"

namespace jf::JF_NAMESPACE {

#if defined(__AVX512VNNI__)

namespace {

constexpr int kBlock = 6, kPanel = 4, kChunk = 64;

// Of a row's chunk; those of a block's rows follow one another, chunk by chunk.
struct ChunkRecord {
    float scale;
    int32_t offset;  // -128 times the sum of the integers: what codes have too much
};

int64_t blocks_of_rows(int64_t n) { return (n + kBlock - 1) / kBlock; }
int64_t quads_of(int64_t columns) { return (columns + 3) / 4; }
int64_t chunks_of(int64_t columns) { return (columns + kChunk - 1) / kChunk; }
int64_t records_bytes(int64_t columns, int64_t n) {
    const int64_t records = blocks_of_rows(n) * kBlock * chunks_of(columns);
    return (records * static_cast<int64_t>(sizeof(ChunkRecord)) + 63) / 64 * 64;
}

// Sixteen of a row from column k on, of which those past the end are zero.
template <class T>
V sixteen(const T* row, int64_t k, int64_t columns) {
    return k + kLanes <= columns ? load(row + k) : load(row + k, static_cast<int>(columns - k));
}

// A chunk of a row into its place in a block.
template <class T>
ChunkRecord put_chunk(const T* row, int64_t columns, uint8_t* to) {
    V most = set1(0.0f), bad = set1(0.0f);
    for (int64_t k = 0; k < columns; k += kLanes) {
        const V x = sixteen(row, k, columns);
        most = max_(most, abs_(x));
        bad = fma_(x, set1(0.0f), bad);
    }
    const float top = largest(most);
    const bool sound = sum(bad) == 0.0f && top < INFINITY;
    const V inverse = set1(sound && top > 0 ? 127 / top : 0.0f);
    __m512i total = _mm512_setzero_si512();
    for (int64_t k = 0; k < columns; k += kLanes) {
        const V x = sound ? sixteen(row, k, columns) * inverse : set1(0.0f);
        const __m512i whole = _mm512_cvtps_epi32(x.v);
        total = _mm512_add_epi32(total, whole);
        alignas(16) int32_t words[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(words), _mm512_cvtepi32_epi8(whole));
        const int64_t quads = quads_of(columns) - k / 4 < 4 ? quads_of(columns) - k / 4 : 4;
        for (int64_t quad = 0; quad < quads; ++quad) std::memcpy(to + (k / 4 + quad) * kBlock * 4, words + quad, 4);
    }
    return {sound ? top / 127 : NAN, -Int8::kZero * _mm512_reduce_add_epi32(total)};
}

template <class T>
void put_rows(const T* x, int64_t n, int64_t ldx, int64_t columns, uint8_t* prepared) {
    auto* records = reinterpret_cast<ChunkRecord*>(prepared);
    uint8_t* to = prepared + records_bytes(columns, n);
    const int64_t block_bytes = quads_of(columns) * kBlock * 4;
    if (n % kBlock != 0) std::memset(to + n / kBlock * block_bytes, 0, block_bytes);
    for (int64_t row = 0; row < blocks_of_rows(n) * kBlock; ++row) {
        uint8_t* place = to + row / kBlock * block_bytes + row % kBlock * 4;
        ChunkRecord* record = records + row / kBlock * kBlock * chunks_of(columns) + row % kBlock;
        for (int64_t k = 0; k < columns; k += kChunk, record += kBlock) {
            const int64_t width = columns - k < kChunk ? columns - k : kChunk;
            *record = row < n ? put_chunk(x + row * ldx + k, width, place + k / 4 * kBlock * 4) : ChunkRecord{};
        }
    }
}

#define JF_ROW(offset, s0, s1, s2, s3)                       \
    "vpbroadcastd " #offset "(%[x]), %%zmm28\n\t"            \
    "vpdpbusd %%zmm28, %%zmm24, %%zmm" #s0 "\n\t"            \
    "vpdpbusd %%zmm28, %%zmm25, %%zmm" #s1 "\n\t"            \
    "vpdpbusd %%zmm28, %%zmm26, %%zmm" #s2 "\n\t"            \
    "vpdpbusd %%zmm28, %%zmm27, %%zmm" #s3 "\n\t"
// A row's sums begin with its offset, and end multiplied with its scale and added to its totals, 256 bytes a row.
#define JF_BEGIN(offset, s0, s1, s2, s3)                     \
    "vpbroadcastd " #offset "(%[records]), %%zmm" #s0 "\n\t"  \
    "vmovdqa64 %%zmm" #s0 ", %%zmm" #s1 "\n\t"               \
    "vmovdqa64 %%zmm" #s0 ", %%zmm" #s2 "\n\t"               \
    "vmovdqa64 %%zmm" #s0 ", %%zmm" #s3 "\n\t"
#define JF_TOTAL(s)                                          \
    "vcvtdq2ps %%zmm" #s ", %%zmm" #s "\n\t"                 \
    "vfmadd213ps " #s "*64(%[totals]), %%zmm28, %%zmm" #s "\n\t" \
    "vmovaps %%zmm" #s ", " #s "*64(%[totals])\n\t"
#define JF_END(scale, s0, s1, s2, s3) \
    "vbroadcastss " #scale "(%[records]), %%zmm28\n\t" JF_TOTAL(s0) JF_TOTAL(s1) JF_TOTAL(s2) JF_TOTAL(s3)

// Adds to totals[row][tile][lane] the products of a chunk: of a block of rows with kPanel tiles, from `start` bytes on in each.
void add_chunk(const uint8_t* const (&tiles)[kPanel], int64_t start, const uint8_t* x, int64_t quads, const ChunkRecord* records,
               V* totals) {
    static_assert(sizeof(ChunkRecord) == 8 && offsetof(ChunkRecord, scale) == 0 && offsetof(ChunkRecord, offset) == 4);
    const uint8_t *a = tiles[0] + start, *b = tiles[1] + start, *c = tiles[2] + start, *d = tiles[3] + start;
    asm volatile(JF_BEGIN(4, 0, 1, 2, 3)
                 JF_BEGIN(12, 4, 5, 6, 7)
                 JF_BEGIN(20, 8, 9, 10, 11)
                 JF_BEGIN(28, 12, 13, 14, 15)
                 JF_BEGIN(36, 16, 17, 18, 19)
                 JF_BEGIN(44, 20, 21, 22, 23)
                 "1:\n\t"
                 "vmovdqa64 (%[a]), %%zmm24\n\t"
                 "vmovdqa64 (%[b]), %%zmm25\n\t"
                 "vmovdqa64 (%[c]), %%zmm26\n\t"
                 "vmovdqa64 (%[d]), %%zmm27\n\t"
                 JF_ROW(0, 0, 1, 2, 3)
                 JF_ROW(4, 4, 5, 6, 7)
                 JF_ROW(8, 8, 9, 10, 11)
                 JF_ROW(12, 12, 13, 14, 15)
                 JF_ROW(16, 16, 17, 18, 19)
                 JF_ROW(20, 20, 21, 22, 23)
                 "add $64, %[a]\n\t"
                 "add $64, %[b]\n\t"
                 "add $64, %[c]\n\t"
                 "add $64, %[d]\n\t"
                 "add $24, %[x]\n\t"
                 "dec %[quads]\n\t"
                 "jnz 1b\n\t"
                 JF_END(0, 0, 1, 2, 3)
                 JF_END(8, 4, 5, 6, 7)
                 JF_END(16, 8, 9, 10, 11)
                 JF_END(24, 12, 13, 14, 15)
                 JF_END(32, 16, 17, 18, 19)
                 JF_END(40, 20, 21, 22, 23)
                 : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x] "+r"(x), [quads] "+r"(quads)
                 : [records] "r"(records), [totals] "r"(totals)
                 : "memory", "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",
                   "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21",
                   "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28");
}

#undef JF_ROW
#undef JF_BEGIN
#undef JF_TOTAL
#undef JF_END

}  // namespace

int64_t int8_bytes(int64_t columns, int64_t n) {
    return records_bytes(columns, n) + blocks_of_rows(n) * quads_of(columns) * kBlock * 4;
}

void prepare_int8(const void* x, Scalar scalar, int64_t n, int64_t ldx, int64_t columns, void* prepared) {
    auto* to = static_cast<uint8_t*>(prepared);
    switch (scalar) {
        case kFloat32: return put_rows(static_cast<const float*>(x), n, ldx, columns, to);
        case kBfloat16: return put_rows(static_cast<const bf16_t*>(x), n, ldx, columns, to);
        case kFloat16: return put_rows(static_cast<const f16_t*>(x), n, ldx, columns, to);
    }
}

void multiply_int8(const Weight& weight, const void* prepared, int64_t n, int64_t first, int64_t last, float* out, int64_t ldo) {
    const int64_t bytes = tile_bytes<Int8>(weight.columns), quads = quads_of(weight.columns);
    for (int64_t tile = first; tile < last; tile += kPanel) {
        const int count = static_cast<int>(last - tile < kPanel ? last - tile : kPanel);
        const uint8_t* tiles[kPanel];
        V scales[kPanel];
        for (int t = 0; t < kPanel; ++t) {
            const uint8_t* at = weight.data + (tile + (t < count ? t : 0)) * bytes;  // those too many are not looked at
            scales[t] = load(reinterpret_cast<const float*>(at));
            tiles[t] = at + Int8::kHeader;
        }
        const auto* records = static_cast<const ChunkRecord*>(prepared);
        const uint8_t* x = static_cast<const uint8_t*>(prepared) + records_bytes(weight.columns, n);
        for (int64_t row = 0; row < n; row += kBlock) {
            V totals[kBlock * kPanel];
            for (V& total : totals) total = set1(0.0f);
            for (int64_t quad = 0; quad < quads; quad += kChunk / 4, records += kBlock) {
                const int64_t some = quads - quad < kChunk / 4 ? quads - quad : kChunk / 4;
                add_chunk(tiles, quad * kQuad, x, some, records, totals);
                x += some * kBlock * 4;
            }
            for (int i = 0; i < kBlock && row + i < n; ++i) {
                for (int t = 0; t < count; ++t) {
                    store(out + (row + i) * ldo + (tile - first + t) * kTile, totals[i * kPanel + t] * scales[t]);
                }
            }
        }
    }
}

#else

// Never called: see kInt8Products.
int64_t int8_bytes(int64_t, int64_t) { return 0; }
void prepare_int8(const void*, Scalar, int64_t, int64_t, int64_t, void*) {}
void multiply_int8(const Weight&, const void*, int64_t, int64_t, int64_t, float*, int64_t) {}

#endif

}  // namespace jf::JF_NAMESPACE
