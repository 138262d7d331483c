// A pool of threads that run one function together, with barriers inside it. It knows nothing of kernels.
//
// The caller is thread 0. Workers spin for a short time after their work and then sleep, so that a pool between two tokens is
// awake and an idle one costs its neighbours nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace jf {

class Pool {
  public:
    // threads >= 1, the caller's included.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int size() const { return size_; }

    // Calls function(thread) on every thread, 0 <= thread < size(), and returns when all have returned. Callers on several
    // threads wait for each other. The function must not throw and must not call run.
    template <class F>
    void run(F&& function) {
        run_raw([](void* f, int thread) { (*static_cast<std::remove_reference_t<F>*>(f))(thread); }, &function);
    }

    // Inside run: waits until all threads have come here. Every thread must come the same number of times.
    void barrier();

    // One pool for every number of threads; it lives as long as the process. In a child of fork, which has the caller alone of all
    // threads, it starts its workers anew.
    static Pool& shared(int threads);

  private:
    using Call = void (*)(void*, int);
    friend struct SharedPools;
    void run_raw(Call call, void* data);
    void start();
    // In a child of fork: as if no run had ever been; workers start with the next one.
    void forget();
    void work(int thread);

    const int size_;
    std::vector<std::thread> workers_;
    std::atomic<bool> started_{false};
    std::mutex callers_;
    Call call_ = nullptr;
    void* data_ = nullptr;
    int processor_ = -1;  // of the caller
    alignas(64) std::atomic<uint32_t> epoch_{0};  // raised for each run; workers sleep on it
    alignas(64) std::atomic<int> sleeping_{0};
    alignas(64) std::atomic<int> running_{0};  // workers that have not finished this run
    alignas(64) std::atomic<uint32_t> turn_{0};  // raised by the last thread at a barrier
    alignas(64) std::atomic<int> arrived_{0};
    std::atomic<bool> closing_{false};
};

}  // namespace jf
