#include "train/batch_reader.h"

#include <pthread.h>

#include <utility>

namespace lockstep {

BatchReader::BatchReader(std::int64_t elements, Read read)
    : elements_(static_cast<std::size_t>(elements)), read_(std::move(read)) {
  loaded_.resize(elements_);
}

BatchReader::~BatchReader() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchReader::load(std::int64_t first) {
  if (elements_ > 0 && !take(first)) read_(first, loaded_.tokens, loaded_.targets);
}

bool BatchReader::take(std::int64_t first) {
  std::unique_lock lock(mutex_);
  if (state_ == Ahead::nothing || first_ != first) return false;
  if (state_ == Ahead::wanted) {
    state_ = Ahead::nothing;
    return false;
  }
  changed_.wait(lock, [this] { return state_ == Ahead::done; });
  state_ = Ahead::nothing;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  std::swap(loaded_, ahead_);
  return true;
}

void BatchReader::read_ahead(std::int64_t first) {
  if (elements_ == 0) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != Ahead::reading; });  // of a batch that nobody came for
    if (ahead_.tokens.empty()) ahead_.resize(elements_);
    failure_ = nullptr;
    first_ = first;
    state_ = Ahead::wanted;
  }
  if (thread_.joinable()) {
    changed_.notify_all();
  } else {
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), kThreadName);
  }
}

void BatchReader::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || state_ == Ahead::wanted; });
    if (stop_) return;
    state_ = Ahead::reading;
    lock.unlock();
    std::exception_ptr failure;
    try {
      read_(first_, ahead_.tokens, ahead_.targets);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = std::move(failure);
    state_ = Ahead::done;
    changed_.notify_all();
  }
}

}  // namespace lockstep
