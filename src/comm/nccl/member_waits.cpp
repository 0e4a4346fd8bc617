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
  const auto end = waiting::deadline_in(resources_.options.deadline_seconds);
  Lock lock(mutex_);
  if (std::uncaught_exceptions() > 0) fail(kLeft, true);
  for (bool idle = false; !idle && !failure_;) {
    idle = true;
    guarded([&] {
      advance();
      each_in_flight([&](InFlightOperations& in_flight) { idle = in_flight.idle() && idle; });
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
  const auto end = waiting::deadline_in(operation.deadline);
  for (;;) {
    bool there = false;
    guarded([&] {
      advance();
      there = enough();
    });
    throw_failure();
    if (there) return;
    if (Clock::now() >= end) fail(late_text(operation), false);
    throw_failure();
    lock.unlock();
    std::this_thread::sleep_for(kSoon);
    lock.lock();
  }
}

bool Member::test(Operation& operation) {
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
    operation.needed = resources_.compute.make_event();
    resources_.compute.record(*operation.needed);
    resources_.compute.wait(*operation.ended);
  }
}

// Of a Pending that nobody waited for: its tensors may be put to other use in the compute stream.
void Member::order_on_drop(Operation& operation) noexcept {
  Lock lock(mutex_);
  if (std::uncaught_exceptions() > 0) fail(kLeft, true);
  if (!failure_ && !operation.issued) {
    try {
      wait_on_host(operation, lock, [&] { return operation.issued; });
    } catch (const std::exception&) {  // told to the next call
    }
  }
  guarded([&] {
    if (operation.issued) resources_.compute.wait(*operation.ended);
  });
}

void Member::advance() {
  each_in_flight([](InFlightOperations& in_flight) {
    in_flight.advance();
    in_flight.poll_errors();
  });
}

void Member::each_in_flight(const std::function<void(InFlightOperations&)>& each) {
  if (failure_) return;
  each(*collectives_);
  for (auto& [way, in_flight] : pairs_) each(*in_flight);
}

// Kernels of NCCL that wait for others end, so the streams continue.
void Member::fail(const std::string& what, bool secondary) noexcept {
  if (failure_) return;
  std::string words = fmt::format("rank {} of '{}': {}", rank(), name(), what);
  each_in_flight([&](InFlightOperations& in_flight) {
    if (const std::string title = in_flight.first_title(); !title.empty() && what.find(title) == std::string::npos)
      words += "; under way: " + title;
    in_flight.abort();
  });
  failure_ = CommFailure{words, secondary};
}

std::string Member::late_text(const Operation& operation) const {
  return fmt::format(
      "{}: not done within {} s; one or more of the other ranks of '{}' ({} in all) did not come, or are "
      "gone; NCCL_DEBUG=INFO shows what NCCL waits for",
      operation.title, operation.deadline, name(), size());
}

void Member::watch(const std::stop_token& stop) {
  Lock lock(mutex_);
  guarded([&] { resources_.library.enter_thread(); });
  while (!stop.stop_requested()) {
    bool idle = true, unissued = false;
    guarded([&] {
      advance();
      each_in_flight([&](InFlightOperations& in_flight) {
        if (const auto late = in_flight.late()) throw CommError(late_text(*late));
        idle = in_flight.idle() && idle;
        unissued = unissued || in_flight.unissued();
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
