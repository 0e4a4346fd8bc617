#include "comm/threads/run_ranks.h"

#include <mutex>
#include <thread>

#include "comm/rethrow.h"

namespace lockstep {

namespace {

// The error that will be told: the first, but one with a cause elsewhere gives way to the first without.
class FirstError {
 public:
  void note(int rank, std::exception_ptr error, bool secondary) {
    const std::lock_guard lock(mutex_);
    if (error_ && (secondary || !secondary_)) return;
    error_ = std::move(error);
    rank_ = rank;
    secondary_ = secondary;
  }

  void rethrow(int ranks) const {
    if (!error_) return;
    if (ranks == 1) std::rethrow_exception(error_);  // nobody asks which rank it was
    try {
      std::rethrow_exception(error_);
    } catch (...) {
      rethrow_with([&](const char* what) { return fmt::format("rank {}: {}", rank_, what); });
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  int rank_ = 0;
  bool secondary_ = false;
};

void run_rank(ThreadsWorld& world, int rank, const std::function<void(std::unique_ptr<Communicator>)>& body,
              FirstError& first) {
  const auto failed = [&](const std::string& what, bool secondary) {
    first.note(rank, std::current_exception(), secondary);
    world.end(rank, "has failed (" + what + ")");
    world.abort(fmt::format("rank {} has failed: {}", rank, what));
  };
  try {
    body(world.communicator(rank));
    world.end(rank);
  } catch (const CommError& error) {
    failed(error.what(), error.secondary());
  } catch (const std::exception& error) {
    failed(error.what(), false);
  } catch (...) {
    failed("an exception without a message", false);
  }
}

}  // namespace

void run_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body, ThreadsOptions options) {
  ThreadsWorld world(ranks, options);
  FirstError first;
  std::vector<std::jthread> threads;
  try {
    for (int rank = 1; rank < ranks; ++rank) threads.emplace_back([&, rank] { run_rank(world, rank, body, first); });
    run_rank(world, 0, body, first);
  } catch (const std::system_error& error) {  // no more threads to be had
    world.abort(error.what());
    first.note(static_cast<int>(threads.size()) + 1, std::current_exception(), false);
  }
  threads.clear();  // joins
  first.rethrow(ranks);
}

}  // namespace lockstep
