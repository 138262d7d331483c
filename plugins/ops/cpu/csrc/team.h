// What drivers share: the threads that work on the same rows, memory for what lies between products, and products in panels.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "dispatch.h"
#include "pool.h"
#include "weight.h"

namespace jf {

struct Span {
    int64_t first, last;
    int64_t size() const { return last - first; }
};

// The threads of a pool together, or one alone (pool null). Every member goes through the same steps.
struct Team {
    Pool* pool;
    int rank, size;

    static Team of(Pool& pool, int thread) { return {&pool, thread, pool.size()}; }
    static Team alone() { return {nullptr, 0, 1}; }
    void barrier() const {
        if (pool != nullptr) pool->barrier();
    }
    // This member's part of so many pieces.
    Span share(int64_t total) const { return {total * rank / size, total * (rank + 1) / size}; }
};

constexpr int64_t kWorthWaking = 16384;  // elements of rows from which on other threads help

// Calls rows(first, last), on all threads if there is much to do.
template <class F>
void share_out(int64_t n, int64_t elements, int threads, F&& rows) {
    if (n == 1 || elements < kWorthWaking) {
        rows(int64_t{0}, n);
        return;
    }
    auto& pool = Pool::shared(threads);
    pool.run([&](int thread) { rows(n * thread / pool.size(), n * (thread + 1) / pool.size()); });
}

// Memory of one thread, kept for the next call; contents are lost when it grows.
class Arena {
  public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena() { std::free(data_); }

    uint8_t* reserve(int64_t bytes) {
        if (bytes > size_) {
            std::free(data_);
            size_ = (bytes + bytes / 4 + 4095) / 4096 * 4096;
            data_ = static_cast<uint8_t*>(std::aligned_alloc(4096, static_cast<size_t>(size_)));
            if (data_ == nullptr) throw std::bad_alloc();  // ends the process: there is nobody to catch it
        }
        return data_;
    }

    // Of the calling thread: what the team reads that it calls for, and what it alone reads.
    static Arena& shared() {
        static thread_local Arena arena;
        return arena;
    }
    static Arena& own() {
        static thread_local Arena arena;
        return arena;
    }

  private:
    uint8_t* data_ = nullptr;
    int64_t size_ = 0;
};

// Offsets of buffers in an arena, each aligned to 64 bytes.
class Layout {
  public:
    int64_t add(int64_t bytes) {
        const int64_t offset = size_;
        size_ += (bytes + 63) / 64 * 64;
        return offset;
    }
    int64_t size() const { return size_; }

  private:
    int64_t size_ = 0;
};

// Rows as a product reads them: as they are, or prepared.
struct Rows {
    const void* data;
    int64_t stride;  // 0: prepared
};

inline const LinearKernels& kernels_for(const Weight& weight) { return kernels().linear[weight.form]; }

inline int64_t prepared_bytes(const Weight& weight, int64_t n, Scalar scalar) {
    return kernels_for(weight).prepared_bytes(weight.columns, n, scalar);
}

// Prepares into `room` (prepared_bytes of it), if need be.
inline Rows prepared(const Weight& weight, const void* x, Scalar scalar, int64_t n, int64_t stride, void* room) {
    if (prepared_bytes(weight, n, scalar) == 0) return {x, stride};
    kernels_for(weight).prepare(x, scalar, n, stride, weight.columns, room);
    return {room, 0};
}

inline void multiply(const Weight& weight, Rows x, int64_t n, Span tiles, float* out, int64_t stride, void* scratch) {
    if (tiles.size() <= 0) return;
    kernels_for(weight).multiply(weight, x.data, x.stride, n, tiles.first, tiles.last, out, stride, scratch);
}

// Tiles that are multiplied at once: with many rows so few that their weights stay in the second cache for all of the rows,
// with few rows so many that a call costs nothing.
inline int64_t panel_of(int64_t n) { return n > 32 ? 4 : 64; }

// Rows that one thread takes through a whole block at once; what lies between its products stays in the second cache.
constexpr int64_t kBlockRows = 132;
// From so many rows on threads share out rows, not outputs.
constexpr int64_t kRowsApart = 2 * kBlockRows;

// Calls work(team, first row, number of rows, shared) on all threads: for all rows with the pool as one team, or for blocks of rows
// with each thread alone. shared: memory of shared_bytes(number of rows) that the team's members have in common. n >= 1.
template <class Bytes, class Work>
void over_rows(Pool& pool, int64_t n, Bytes&& shared_bytes, Work&& work) {
    if (pool.size() > 1 && n < kRowsApart) {
        uint8_t* shared = Arena::shared().reserve(shared_bytes(n));
        pool.run([&](int thread) { work(Team::of(pool, thread), int64_t{0}, n, shared); });
        return;
    }
    // As many blocks for every thread, of about equal size.
    const int64_t rounds = (n + kBlockRows * pool.size() - 1) / (kBlockRows * pool.size());
    const int64_t step = (n + rounds * pool.size() - 1) / (rounds * pool.size());
    std::atomic<int64_t> next{0};
    pool.run([&](int) {
        uint8_t* shared = Arena::shared().reserve(shared_bytes(step));
        for (int64_t first; (first = next.fetch_add(step)) < n;) work(Team::alone(), first, std::min(step, n - first), shared);
    });
}

}  // namespace jf
