// Norm, bias, gated activation and rotary of single rows.
#include "rows.h"

#include "dispatch.h"
#include "vec.h"

namespace jf::JF_NAMESPACE {
namespace {

// Calls with(value of the element type).
template <class F>
void typed(Scalar scalar, F&& with) {
    switch (scalar) {
        case kFloat32: return with(float{});
        case kBfloat16: return with(bf16_t{});
        case kFloat16: return with(f16_t{});
    }
}

// Calls step(index, count) for sixteen elements at a time; count is below sixteen at the end alone.
template <class F>
inline void sixteens(int64_t size, F&& step) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) step(i, kLanes);
    if (i < size) step(i, static_cast<int>(size - i));
}

template <class T>
inline V take(const T* from, int count) {
    return count == kLanes ? load(from) : load(from, count);
}
template <class T>
inline void put(T* to, V value, int count) {
    if (count == kLanes) {
        store(to, value);
    } else {
        store(to, value, count);
    }
}

template <class T, class W>
void norm_row(const T* x, const T* residual, T* sum_out, T* normed, const W* weight, float eps, int64_t size) {
    V squares = set1(0.0f), more = set1(0.0f);
    sixteens(size, [&](int64_t i, int count) {
        V value = take(x + i, count);
        if (residual != nullptr) {
            value = rounded(value + take(residual + i, count), T{});
            put(sum_out + i, value, count);
        }
        if (i / kLanes % 2) {
            squares = fma_(value, value, squares);
        } else {
            more = fma_(value, value, more);
        }
    });
    const V scale = set1(1.0f / std::sqrt(sum(squares + more) / static_cast<float>(size) + eps));
    const T* from = residual != nullptr ? sum_out : x;
    sixteens(size, [&](int64_t i, int count) {
        // Rounded before the weight, as the models were trained; a float32 weight is applied before.
        const V value = rounded(take(from + i, count) * scale, W{});
        put(normed + i, value * take(weight + i, count), count);
    });
}

void norm(const void* x, const void* residual, void* sum_out, void* normed, Scalar scalar, const Norm& norm, int64_t size) {
    typed(scalar, [&](auto type) {
        using T = decltype(type);
        const auto row = [&](const auto* weight) {
            norm_row(static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<T*>(sum_out),
                     static_cast<T*>(normed), weight, norm.eps, size);
        };
        if (norm.scalar == kFloat32) {
            row(static_cast<const float*>(norm.weight));
        } else {
            row(static_cast<const T*>(norm.weight));
        }
    });
}

template <class T>
inline V with_bias(const float* product, const T* bias, int64_t i, int count) {
    const V value = take(product + i, count);
    return bias == nullptr ? value : value + take(bias + i, count);
}

void finish(const float* product, const void* bias, void* out, Scalar scalar, int64_t size) {
    typed(scalar, [&](auto type) {
        using T = decltype(type);
        sixteens(size, [&](int64_t i, int count) {
            put(static_cast<T*>(out) + i, with_bias(product, static_cast<const T*>(bias), i, count), count);
        });
    });
}

// erf(x) within 2e-7 (Abramowitz and Stegun, 7.1.26).
inline V erf_(V x) {
    const V size = abs_(x);
    const V t = set1(1.0f) / fma_(set1(0.3275911f), size, set1(1.0f));
    V sum = set1(1.061405429f);
    sum = fma_(sum, t, set1(-1.453152027f));
    sum = fma_(sum, t, set1(1.421413741f));
    sum = fma_(sum, t, set1(-0.284496736f));
    sum = fma_(sum, t, set1(0.254829592f));
    return copy_sign(set1(1.0f) - sum * t * exp_(-(size * size)), x);
}

// x / (1 + e^-y); a NaN of x stays one, of y it does not.
inline V times_sigmoid(V x, V y) { return x / (set1(1.0f) + exp_inside(clipped(-y))); }

template <Activation kWhich>
inline V activate(V x) {
    if constexpr (kWhich == kSilu) return times_sigmoid(x, x);
    if constexpr (kWhich == kGelu) return x * set1(0.5f) * (set1(1.0f) + erf_(x * set1(0.70710678118654752f)));
    if constexpr (kWhich == kGeluTanh) {
        // (1 + tanh(y)) / 2 = sigmoid(2 y)
        const V inner = fma_(x * x * x, set1(0.044715f), x) * set1(2 * 0.79788456080286536f);
        return times_sigmoid(x, inner);
    }
    if constexpr (kWhich == kRelu) return max_(set1(0.0f), x);  // a NaN stays one
}

template <class T, Activation kWhich>
void gate_row(const float* gate, const float* up, const T* gate_bias, const T* up_bias, T* out, int64_t size) {
    sixteens(size, [&](int64_t i, int count) {
        const V active = rounded(activate<kWhich>(rounded(with_bias(gate, gate_bias, i, count), T{})), T{});
        put(out + i, active * rounded(with_bias(up, up_bias, i, count), T{}), count);
    });
}

void gate(const float* gate, const float* up, const void* gate_bias, const void* up_bias, void* out, Scalar scalar,
          Activation activation, int64_t size) {
    typed(scalar, [&](auto type) {
        using T = decltype(type);
        const auto* first = static_cast<const T*>(gate_bias);
        const auto* second = static_cast<const T*>(up_bias);
        auto* to = static_cast<T*>(out);
        switch (activation) {
            case kSilu: return gate_row<T, kSilu>(gate, up, first, second, to, size);
            case kGelu: return gate_row<T, kGelu>(gate, up, first, second, to, size);
            case kGeluTanh: return gate_row<T, kGeluTanh>(gate, up, first, second, to, size);
            case kRelu: return gate_row<T, kRelu>(gate, up, first, second, to, size);
        }
    });
}

void rotate(void* x, const float* cos, const float* sin, Scalar scalar, int64_t half) {
    typed(scalar, [&](auto type) {
        using T = decltype(type);
        T* first = static_cast<T*>(x);
        T* second = first + half;
        sixteens(half, [&](int64_t i, int count) {
            const V a = take(first + i, count), b = take(second + i, count);
            const V c = take(cos + i, count), s = take(sin + i, count);
            put(first + i, a * c - b * s, count);
            put(second + i, b * c + a * s, count);
        });
    });
}

}  // namespace

void register_rows(Kernels& kernels) { kernels.rows = {norm, finish, gate, rotate}; }

}  // namespace jf::JF_NAMESPACE
