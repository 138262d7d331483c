// Quantised weights as linear layers: which of the ways of multiplying serves so many rows.
#include "dispatch.h"
#include "quant.h"
#include "quant_kernels.h"

namespace jf::JF_NAMESPACE {
namespace {

constexpr int64_t kPanel = 2;  // tiles that are decoded at once

// Rows up to which codes are multiplied as they are: beyond, decoding costs less than what it saves. Activations of int8 weights
// keep 14 bits as long as that costs nothing, because the product waits for memory.
constexpr int64_t kFewRows = 24, kFewRowsInt8 = 4;

bool code_by_code(int64_t form, int64_t n, int64_t scalar) {
    if (scalar == kFloat32) return false;
    return n <= (form == kInt8 && kInt8Products ? kFewRowsInt8 : kFewRows);
}

bool in_int8(int64_t form, int64_t scalar) { return kInt8Products && form == kInt8 && scalar != kFloat32; }

Form decoded_form(int64_t scalar) { return kDecodesToBf16 && scalar == kBfloat16 ? kBf16 : kF32; }

const LinearKernels& plain(int64_t scalar) { return kernels().linear[decoded_form(scalar)]; }

int64_t decoded_tile_bytes(int64_t columns, Form form) {
    return form == kBf16 ? (columns + 1) / 2 * 2 * kTile * 2 : columns * kTile * 4;
}

template <int form>
int64_t prepared_bytes(int64_t columns, int64_t n, Scalar scalar) {
    if (code_by_code(form, n, scalar)) return few_bytes(columns, n);
    if (in_int8(form, scalar)) return int8_bytes(columns, n);
    return plain(scalar).prepared_bytes(columns, n, scalar);
}

template <int form>
void prepare(const void* x, Scalar scalar, int64_t n, int64_t ldx, int64_t columns, void* prepared) {
    if (code_by_code(form, n, scalar)) return prepare_few(x, scalar, n, ldx, columns, prepared);
    if (in_int8(form, scalar)) return prepare_int8(x, scalar, n, ldx, columns, prepared);
    plain(scalar).prepare(x, scalar, n, ldx, columns, prepared);
}

int64_t scratch_bytes(int64_t columns, int64_t) { return kPanel * decoded_tile_bytes(columns, kF32); }

void multiply(const Weight& weight, const void* x, int64_t ldx, int64_t n, int64_t first, int64_t last, float* out, int64_t ldo,
              void* scratch) {
    if (code_by_code(weight.form, n, weight.flags)) return multiply_few(weight, x, n, first, last, out, ldo);
    if (in_int8(weight.form, weight.flags)) return multiply_int8(weight, x, n, first, last, out, ldo);
    const Form form = decoded_form(weight.flags);
    const int64_t bytes = decoded_tile_bytes(weight.columns, form);
    auto* decoded = static_cast<uint8_t*>(scratch);
    for (int64_t tile = first; tile < last; tile += kPanel) {
        const int64_t count = last - tile < kPanel ? last - tile : kPanel;
        for (int64_t i = 0; i < count; ++i) decode_tile(weight, tile + i, form, decoded + i * bytes);
        const Weight panel{form, 0, count * kTile, weight.columns, decoded};
        plain(weight.flags).multiply(panel, x, ldx, n, 0, count, out + (tile - first) * kTile, ldo, nullptr);
    }
}

// data: Weights in other forms of this file, one after another, all but the last of whole tiles; one without rows ends them. What
// is prepared is the same for each, because int8 is not among them.
void multiply_mixed(const Weight& weight, const void* x, int64_t ldx, int64_t n, int64_t first, int64_t last, float* out, int64_t ldo,
                    void* scratch) {
    int64_t start = 0;
    for (const auto* part = reinterpret_cast<const Weight*>(weight.data); part->rows > 0; ++part) {
        const int64_t stop = start + tiles_of(part->rows);
        const int64_t from = first > start ? first : start, to = last < stop ? last : stop;
        if (from < to) multiply(*part, x, ldx, n, from - start, to - start, out + (from - first) * kTile, ldo, scratch);
        start = stop;
    }
}

template <int form>
void fill(Kernels& kernels) {
    kernels.linear[form] = {prepared_bytes<form>, prepare<form>, scratch_bytes, form == kMixed ? multiply_mixed : multiply};
}

}  // namespace

void register_quantized(Kernels& kernels) {
    fill<kQ8_0>(kernels);
    fill<kQ4_0>(kernels);
    fill<kQ4_1>(kernels);
    fill<kQ4K>(kernels);
    fill<kQ6K>(kernels);
    fill<kInt8>(kernels);
    fill<kMixed>(kernels);
}

}  // namespace jf::JF_NAMESPACE
