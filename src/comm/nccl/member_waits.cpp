// How a rank waits, and how what it waits for fails.
#include <exception>

#include "comm/nccl/member.h"

namespace lockstep::nccl {

namespace {
constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks of the thread that watches
constexpr auto kOften = std::chrono::milliseconds(1);  // and of it while there is something to give to a stream
constexpr auto kSoon = std::chrono::microseconds(50);  // of a host that waits

// An error is on its way out of this rank: what others do not come to would only keep it from being told.
constexpr const char* kLeft = "the rank has left the group because of an error of its own";
}  // namespace

Member::~Member() {
  watcher_.request_stop();
  wake_.notify_all();
  watcher_ = {};  // joins
  const auto end = Clock::now() + std::chrono::duration<double>(means_.options.deadline_seconds);
  Lock lock(mutex_);
  if (std::uncaught_exceptions() > 0) fail(kLeft, true);
  for (bool idle = false; !idle && !failure_;) {
    idle = true;
    guarded([&] {
      advance();
      each_track([&](Track& track) { idle = track.idle() && idle; });
    });
    if (!idle && Clock::now() >= end) fail("destroyed with operations under way", false);
    if (!idle) std::this_thread::sleep_for(kSoon);
  }
}

void Member::check() {
  const Lock lock(mutex_);
  guarded([&] { advance(); });
  throw_failure();
}

void Member::wait_on_host(Operation& operation, Lock& lock, const std::function<bool()>& enough) {
  const auto end = Clock::now() + std::chrono::duration<double>(operation.deadline);
  for (;;) {
    bool there = false;
    guarded([&] {
      advance();
      there = enough();
    });
    throw_failure();
    if (there) return;
    if (Clock::now() >= end) fail(late_words(operation), false);
    throw_failure();
    lock.unlock();
    std::this_thread::sleep_for(kSoon);
    lock.lock();
  }
}

bool Member::ask(Operation& operation) {
  const Lock lock(mutex_);
  if (!operation.asked) operation.asked = Clock::now();
  bool done = false;
  guarded([&] {
    advance();
    done = operation.issued && operation.ended->done();
  });
  return done || failure_;
}

void Member::order(Operation& operation) {
  Lock lock(mutex_);
  guarded([&] { advance(); });
  throw_failure();
  if (!operation.issued) wait_on_host(operation, lock, [&] { return operation.issued; });
  if (!operation.needed) {
    operation.needed = means_.compute.make_event();
    means_.compute.record(*operation.needed);
    means_.compute.wait(*operation.ended);
  }
}

// Of a Pending that nobody waited for: its tensors may be put to other use in the compute stream.
void Member::order_at_last(Operation& operation) noexcept {
  Lock lock(mutex_);
  if (std::uncaught_exceptions() > 0) fail(kLeft, true);
  if (!failure_ && !operation.issued) {
    try {
      wait_on_host(operation, lock, [&] { return operation.issued; });
    } catch (const std::exception&) {  // told to the next call
    }
  }
  guarded([&] {
    if (operation.issued) means_.compute.wait(*operation.ended);
  });
}

void Member::advance() {
  each_track([](Track& track) {
    track.advance();
    track.look();
  });
}

void Member::each_track(const std::function<void(Track&)>& each) {
  if (failure_) return;
  each(*collectives_);
  for (auto& [way, track] : lanes_) each(*track);
}

// Kernels of NCCL that wait for others end, so the streams go on.
void Member::fail(const std::string& what, bool secondary) noexcept {
  if (failure_) return;
  std::string words = fmt::format("rank {} of '{}': {}", rank(), name(), what);
  each_track([&](Track& track) {
    if (const std::string title = track.first(); !title.empty() && what.find(title) == std::string::npos)
      words += "; under way: " + title;
    track.abort();
  });
  failure_ = Failure{words, secondary};
}

std::string Member::late_words(const Operation& operation) const {
  return fmt::format(
      "{}: not done within {} s; one or more of the other ranks of '{}' ({} in all) did not come, or are "
      "gone",
      operation.title, operation.deadline, name(), size());
}

void Member::watch(const std::stop_token& stop) {
  Lock lock(mutex_);
  guarded([&] { means_.library.enter_thread(); });
  while (!stop.stop_requested()) {
    bool idle = true, unissued = false;
    guarded([&] {
      advance();
      each_track([&](Track& track) {
        if (const auto late = track.late()) throw CommError(late_words(*late));
        idle = track.idle() && idle;
        unissued = unissued || track.unissued();
      });
    });
    if (idle || failure_) {
      news_ = false;
      wake_.wait(lock, stop, [&] { return news_; });
    } else {
      wake_.wait_for(lock, stop, unissued ? kOften : kLook, [] { return false; });
    }
  }
}

}  // namespace lockstep::nccl
