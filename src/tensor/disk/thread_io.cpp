#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "tensor/disk/raw_io.h"

namespace lockstep::disk {

namespace {

class ThreadIo final : public RawIo {
 public:
  explicit ThreadIo(int depth) : depth_(depth) {
    for (int i = 0; i < depth; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    asked_.notify_all();
    threads_.clear();  // joins: what was started is done first
  }

  int depth() const override { return depth_; }

  void start(const RawRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    asked_.notify_one();
  }

  RawResult next() override {
    std::unique_lock lock(mutex_);
    answered_.wait(lock, [&] { return !results_.empty(); });
    const RawResult result = results_.front();
    results_.pop_front();
    return result;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      asked_.wait(lock, [&] { return ends_ || !requests_.empty(); });
      if (requests_.empty()) return;
      const RawRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const auto bytes = static_cast<std::size_t>(request.bytes);
      const ssize_t count = request.write ? ::pwrite(request.file, request.data, bytes, request.offset)
                                          : ::pread(request.file, request.data, bytes, request.offset);
      const RawResult result{request.tag, count < 0 ? -errno : count};
      lock.lock();
      results_.push_back(result);
      answered_.notify_one();
    }
  }

  int depth_;
  std::mutex mutex_;  // of what follows
  std::condition_variable asked_, answered_;
  std::deque<RawRequest> requests_;
  std::deque<RawResult> results_;
  bool ends_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace

std::unique_ptr<RawIo> make_thread_io(int depth) { return std::make_unique<ThreadIo>(depth); }

std::unique_ptr<RawIo> make_io(int depth) {
  std::unique_ptr<RawIo> io = make_uring_io(depth);
  return io ? std::move(io) : make_thread_io(depth);
}

}  // namespace lockstep::disk
