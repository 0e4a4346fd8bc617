// Every wait for another rank ends when its deadline passes, and not at twice that time (support/deadlines.h). Who is
// named then, the tests of each backend say. Waits over MPI: tests/mpi.
#include "support/deadlines.h"

#include <atomic>

#include "comm/control/guarded.h"
#include "comm/control_ranks.h"
#include "comm/nccl/host_side.h"
#include "comm/nccl_stand_in.h"
#include "comm/ranks.h"
#include "comm/recorder.h"
#include "comm/watchdog.h"

namespace lockstep::tests {
namespace {

using Clock = std::chrono::steady_clock;
using control::CoordinatorOptions;

constexpr double kDeadline = 0.2;
constexpr double kFar = 20;  // of what must not end the wait

// Rank 0 of a group waits for rank 1, which does nothing until that is over. How long it took.
class OneWaits {
 public:
  void run(Communicator& comm, const std::function<void(Communicator&)>& wait) {
    if (comm.rank() == 1) {
      while (!over_) nap(0.001);
      return;
    }
    const auto begin = Clock::now();
    EXPECT_NE(words_of([&] { wait(comm); }), "") << "nothing was missed";
    seconds_ = seconds_since(begin);
    over_ = true;
  }
  double seconds() const { return seconds_; }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<double> seconds_ = 0;
};

void waits(Communicator& comm) { comm.barrier()->wait(); }
void polls(Communicator& comm) {
  const auto pending = comm.barrier();
  while (!pending->done()) nap(0.0005);
  pending->wait();
}
void waits_for_this_long(Communicator& comm) { comm.start({.op = CommOp::barrier, .deadline = kDeadline})->wait(); }

double over_threads(const std::function<void(Communicator&)>& wait, double deadline) {
  OneWaits one;
  each_rank(2, [&](Communicator& comm) { one.run(comm, wait); }, {.deadline_seconds = deadline});
  return one.seconds();
}

TEST(Deadline, OfThreads) {
  expect_ends_at(kDeadline, [] { return over_threads(waits, kDeadline); });
  expect_ends_at(kDeadline, [] { return over_threads(polls, kDeadline); });
  expect_ends_at(kDeadline, [] { return over_threads(waits_for_this_long, kFar); });
}

TEST(Deadline, OfAMessageFromNobody) {
  expect_ends_at(kDeadline, [] {
    return over_threads(
        [](Communicator& comm) {
          Row x(DType::f32, 3);
          comm.recv(x, 1)->wait();
        },
        kDeadline);
  });
}

TEST(Deadline, OfTheWatchdog) {
  expect_ends_at(kDeadline, [] {
    OneWaits one;
    run_ranks(2,
              [&](std::unique_ptr<Communicator> inner) {
                CommLog log;
                Watchdog comm(std::make_unique<Recorder>(std::move(inner), log), log, kDeadline);
                one.run(comm, waits);
              },
              {.deadline_seconds = kFar});
    return one.seconds();
  });
}

// A backend that never ends a wait by itself in time.
class Patient final : public Communicator {
 public:
  explicit Patient(std::unique_ptr<Communicator> inner)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()), inner_(std::move(inner)) {}
  Started start(const Message& message) override {
    Message patient = message;
    patient.deadline = kFar;
    return inner_->start(patient);
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return inner_->split(place, name);
  }

 private:
  std::unique_ptr<Communicator> inner_;
};

TEST(Deadline, OfTheGuard) {
  for (const auto& [wait, deadline] : {std::pair(&waits, kDeadline), {&polls, kDeadline}, {&waits_for_this_long, kFar}})
    expect_ends_at(kDeadline, [&, wait = wait, deadline = deadline] {
      Coordinator coordinator(CoordinatorOptions{.token = kToken});
      ThreadsWorld threads(2, {.deadline_seconds = kFar});
      OneWaits one;
      words_of_each(2, [&](int rank) {
        Session session(place_of(coordinator, rank, 2, kFar));
        Guarded comm(std::make_unique<Patient>(threads.communicator(rank)), session, deadline);
        one.run(comm, wait);
      });
      return one.seconds();
    });
}

double over_nccl(const std::function<void(Communicator&)>& wait, double deadline, bool on_host) {
  Exchange exchange;
  OneWaits one;
  each_rank(2, [&](Communicator& threads) {
    CpuDevice cpu;
    StandIn library(exchange);
    const nccl::Share share = [&](std::span<const char> mine) {
      std::vector<char> bytes(mine.begin(), mine.end());
      threads.broadcast(Tensor(bytes.data(), DType::i32, Device::cpu, {std::ssize(bytes) / 4}), 0)->wait();
      return bytes;
    };
    const nccl::Membership place{threads.rank(), 2};
    const auto comm = on_host
                          ? nccl::make_host_side(library, place, share, cpu.memory(), {.deadline_seconds = deadline})
                          : nccl::make_communicator(library, place, share, cpu.memory(), cpu.stream(),
                                                    {.deadline_seconds = deadline});
    one.run(*comm, wait);
  });
  return one.seconds();
}

TEST(Deadline, OfNccl) {
  for (const bool on_host : {false, true}) {
    expect_ends_at(kDeadline, [&] { return over_nccl(waits, kDeadline, on_host); });
    expect_ends_at(kDeadline, [&] { return over_nccl(waits_for_this_long, kFar, on_host); });
  }
}

// ---------------------------------------------------------------------------------------------------- control plane

TEST(Deadline, OfACoordinatorThatIsNotThere) {
  const int port = Coordinator(CoordinatorOptions{.token = kToken}).port();
  expect_ends_at(kDeadline, [&] {
    return seconds_of([&] {
      EXPECT_NE(words_of([&] { Session session({.port = port, .token = kToken, .deadline_seconds = kDeadline}); }), "");
    });
  });
}

TEST(Deadline, OfRanksThatDoNotJoin) {
  expect_ends_at(kDeadline, [] {
    Coordinator coordinator(CoordinatorOptions{.token = kToken});
    return seconds_of(
        [&] { EXPECT_NE(words_of([&] { Session session(place_of(coordinator, 0, 2, kDeadline)); }), ""); });
  });
}

TEST(Deadline, OfAValueAndOfABarrier) {
  Coordinator coordinator(CoordinatorOptions{.token = kToken});
  words_of_each(2, [&](int rank) {
    Session session(place_of(coordinator, rank, 2, kFar));
    if (rank == 0) {
      expect_ends_at(kDeadline, [&] {
        return seconds_of([&] { EXPECT_NE(words_of([&] { session.get("nothing", kDeadline); }), ""); });
      });
      int tries = 0;
      expect_ends_at(kDeadline, [&] {
        const std::string name = fmt::format("barrier {}", ++tries);
        return seconds_of([&] { EXPECT_NE(words_of([&] { session.barrier(name, kDeadline); }), ""); });
      });
    }
    session.barrier("end");
    session.leave();
  });
}

// A rank whose process stands still: it has joined, and says nothing any more.
TEST(Deadline, OfSilence) {
  constexpr double kSilence = 0.4;
  expect_ends_at(kSilence, [] {
    Coordinator coordinator(CoordinatorOptions{.token = kToken});
    Clock::time_point end;
    std::jthread waits([&] {
      EXPECT_NE(words_of([&] {
                  Session session(place_of(coordinator, 0, 2, kFar));
                  session.get("nothing", kFar);
                }),
                "");
      end = Clock::now();
    });
    Stranger silent(coordinator);
    silent.prove();
    nap(0.1);  // for the other to join before
    const auto begin = Clock::now();
    silent.say(control::Frame{control::FrameType::join, 1, control::Join{1, 2, kSilence, "elsewhere", 77}.encode()});
    waits.join();
    return std::chrono::duration<double>(end - begin).count();
  });
}

}  // namespace
}  // namespace lockstep::tests
