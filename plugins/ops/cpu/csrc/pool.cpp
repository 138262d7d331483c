#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <new>

namespace jf {
namespace {

constexpr auto kSpin = std::chrono::microseconds(80);
constexpr int kPausesBetweenLooks = 64;     // at the clock
constexpr int kPausesBeforeYield = 256;  // some ten microseconds: whom we wait for may have lost its core, or share ours

constexpr int kRunsBeside = 8;

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until done() is true; lets other threads run when it takes long, because they may be the ones waited for.
template <class F>
void spin_until(F&& done) {
    for (int pauses = 0; !done(); ++pauses) {
        if (pauses < kPausesBeforeYield) {
            pause();
        } else {
            std::this_thread::yield();
        }
    }
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// Moves the calling thread to another processor than this one, and leaves it free to move on.
void leave_processor(int processor) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_ISSET(processor, &allowed) || CPU_COUNT(&allowed) < 2) return;
    cpu_set_t others = allowed;
    CPU_CLR(processor, &others);
    if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

Pool::Pool(int threads) : size_(threads) { start(); }

void Pool::start() {
    // Signals are for the threads that Python knows.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int thread = 1; thread < size_; ++thread) workers_.emplace_back([this, thread] { work(thread); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    started_.store(true, std::memory_order_relaxed);
}

void Pool::forget() {
    // Neither may be destroyed: the threads are of the parent, and one of them may have held the mutex.
    new (&workers_) std::vector<std::thread>;
    new (&callers_) std::mutex;
    started_ = false;
    epoch_ = turn_ = 0;
    sleeping_ = running_ = arrived_ = 0;
}

Pool::~Pool() {
    closing_.store(true);
    epoch_.fetch_add(1);
    futex_wake_all(epoch_);
    for (auto& worker : workers_) worker.join();
}

void Pool::run_raw(Call call, void* data) {
    if (size_ == 1) {
        call(data, 0);
        return;
    }
    std::lock_guard<std::mutex> one_at_a_time(callers_);
    if (!started_.load(std::memory_order_relaxed)) start();
    call_ = call;
    data_ = data;
    processor_ = sched_getcpu();
    running_.store(size_ - 1, std::memory_order_relaxed);
    epoch_.fetch_add(1);  // sequentially consistent, as sleeping_ is: a worker that sleeps is seen, or sees this
    if (sleeping_.load() > 0) futex_wake_all(epoch_);
    call(data, 0);
    spin_until([this] { return running_.load(std::memory_order_acquire) == 0; });
}

void Pool::work(int thread) {
    uint32_t seen = 0;
    int beside = 0;  // runs in turn that found this thread on its caller's processor, where the system woke it
    for (;;) {
        const auto until = std::chrono::steady_clock::now() + kSpin;
        for (int pauses = 1; epoch_.load(std::memory_order_acquire) == seen; ++pauses) {
            pause();
            if (pauses % kPausesBetweenLooks != 0) continue;
            if (pauses >= kPausesBeforeYield) std::this_thread::yield();  // the caller may share our core
            if (std::chrono::steady_clock::now() > until) {
                sleeping_.fetch_add(1);
                while (epoch_.load() == seen) futex_wait(epoch_, seen);
                sleeping_.fetch_sub(1);
                break;
            }
        }
        seen = epoch_.load(std::memory_order_acquire);
        if (closing_.load()) return;
        beside = sched_getcpu() == processor_ ? beside + 1 : 0;
        if (beside == kRunsBeside) {
            leave_processor(processor_);
            beside = 0;
        }
        call_(data_, thread);
        running_.fetch_sub(1, std::memory_order_release);
    }
}

void Pool::barrier() {
    if (size_ == 1) return;
    const uint32_t turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        turn_.store(turn + 1, std::memory_order_release);
    } else {
        spin_until([this, turn] { return turn_.load(std::memory_order_acquire) != turn; });
    }
}

struct SharedPools {
    std::mutex mutex;
    std::map<int, std::unique_ptr<Pool>> of;

    SharedPools() {
        pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                       [] {
                           all().mutex.unlock();
                           for (auto& [threads, pool] : all().of) pool->forget();
                       });
    }

    static SharedPools& all() {
        static auto* pools = new SharedPools;  // never destroyed: workers may outlive main
        return *pools;
    }
};

Pool& Pool::shared(int threads) {
    auto& pools = SharedPools::all();
    std::lock_guard<std::mutex> lock(pools.mutex);
    auto& pool = pools.of[threads];
    if (!pool) pool = std::make_unique<Pool>(threads);
    return *pool;
}

}  // namespace jf
