#include "tensor/cpu/workers.h"

#include <utility>

#include "base/error.h"

namespace lockstep::cpu {

namespace {
// A short spin covers the gap between two kernels of one step; beyond it the core is given away, since many ranks may
// share it.
constexpr int kSpins = 2000;

template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}
}  // namespace

Workers::Workers(int threads) {
  LOCKSTEP_CHECK(threads >= 1, "{} threads", threads);
  helpers_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) helpers_.emplace_back([this, worker] { help(worker); });
}

Workers::~Workers() {
  stop_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Workers::work(int worker) {
  try {
    for (std::int64_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < count_;)
      call_(body_, item, worker);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
    next_.store(count_, std::memory_order_relaxed);
  }
}

void Workers::help(int worker) {
  for (std::uint32_t seen = 0;;) {
    wait_while(round_, seen);
    seen = round_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    work(worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void Workers::run(std::int64_t count, Call call, void* body) {
  call_ = call;
  body_ = body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::int32_t>(helpers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work(0);
  for (std::int32_t left; (left = busy_.load(std::memory_order_acquire)) != 0;) wait_while(busy_, left);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace lockstep::cpu
