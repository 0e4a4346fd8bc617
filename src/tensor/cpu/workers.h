// Threads that share one loop: the only parallelism inside a cpu kernel.
//
// `each(count, body)` calls body(item, worker) once for every item in [0, count), on `threads` threads including the
// caller, and returns when all are done. Which worker takes which item varies from run to run, so a body must compute
// the same bits on any worker, and no sum may depend on how the work was split. `worker` in [0, threads) names
// the scratch that may be used. Not reentrant; one caller at a time. An exception from a body reaches the caller after
// the loop has drained.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::cpu {

class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  template <class Body>
  void each(std::int64_t count, Body&& body) {
    if (count <= 0) return;
    if (count == 1 || helpers_.empty()) {
      for (std::int64_t i = 0; i < count; ++i) body(i, 0);
      return;
    }
    run(
        count,
        [](void* self, std::int64_t item, int worker) {
          (*static_cast<std::remove_reference_t<Body>*>(self))(item, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* body, std::int64_t item, int worker);
  void run(std::int64_t count, Call call, void* body);
  void work(int worker);
  void help(int worker);

  std::vector<std::thread> helpers_;
  Call call_ = nullptr;
  void* body_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint32_t> round_{0};  // a new value starts a loop; the helpers wait for it
  std::atomic<std::int32_t> busy_{0};    // helpers still inside the loop
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace lockstep::cpu
