// The error texts of real failures name the rank that caused them (telemetry/culprit.h).
#include "telemetry/culprit.h"

#include "checkpoint/all_or_none.h"
#include "comm/control_ranks.h"

namespace lockstep::tests {
namespace {

using ::testing::Each;

// Whom each rank's error blames; -1: nobody, -2: it has none.
std::vector<int> blamed_by_each(const std::vector<std::string>& errors) {
  std::vector<int> blamed;
  for (const std::string& error : errors) blamed.push_back(error.empty() ? -2 : culprit_in(error).value_or(-1));
  return blamed;
}

// Of the faults as the event log has them.
std::optional<int> culprit_of_errors(const std::vector<std::string>& errors) {
  std::vector<ToldFault> faults;
  for (std::size_t rank = 0; rank < errors.size(); ++rank)
    if (!errors[rank].empty()) faults.push_back({.rank = static_cast<int>(rank), .text = errors[rank]});
  return culprit_of(faults);
}

TEST(CulpritOfThreads, IsARankThatDoesNotCome) {
  const auto errors = errors_of(4,
                                [&](Communicator& comm) {
                                  Row x = row_of(DType::f32, 100, comm.rank());
                                  comm.broadcast(x, 1)->wait();
                                  if (comm.rank() == 2) nap(0.6);
                                  comm.all_reduce(x)->wait();
                                },
                                {.deadline_seconds = 0.2});
  EXPECT_THAT(blamed_by_each(errors), Each(2));
}

TEST(CulpritOfThreads, IsTheRankThatStagesWaitForOneAfterTheOther) {
  const auto errors = errors_of(4,
                                [&](Communicator& comm) {
                                  Row x(DType::f32, 8);
                                  if (comm.rank() == 3) return nap(0.6);
                                  comm.recv(x, comm.rank() + 1)->wait();
                                },
                                {.deadline_seconds = 0.2});
  EXPECT_EQ(culprit_of_errors(errors), 3) << errors[0] << "\n" << errors[2];
}

TEST(CulpritOfThreads, IsARankThatThrowsOrEnds) {
  const auto threw = errors_of(3, [&](Communicator& comm) {
    if (comm.rank() == 1) throw CommError("no more disk");
    comm.barrier()->wait();
  });
  EXPECT_EQ(blamed_by_each(threw)[0], 1) << threw[0];
  EXPECT_EQ(blamed_by_each(threw)[2], 1) << threw[2];
  const auto ended = errors_of(3, [&](Communicator& comm) {
    if (comm.rank() == 2) return;
    comm.barrier()->wait();
  });
  EXPECT_EQ(blamed_by_each(ended), (std::vector<int>{2, 2, -2})) << ended[0];
}

TEST(CulpritOfThreads, IsNobodyWhereRanksDisagree) {
  for (const MismatchCase& mismatch : mismatch_cases()) {
    const auto errors = errors_of(3, [&](Communicator& comm) {
      Row x = row_of(DType::f32, 12, comm.rank());
      mismatch.call(comm, x);
    });
    EXPECT_THAT(blamed_by_each(errors), Each(-1)) << errors[0];
  }
  const auto rooms = errors_of(3, [&](Communicator& comm) {
    Row in(DType::f32, 6), out(DType::f32, comm.rank() == 1 ? 5 : 6);
    comm.all_to_all(out, in, {2, 2, 2})->wait();
  });
  EXPECT_THAT(blamed_by_each(rooms), Each(-1)) << rooms[0];
}

TEST(CulpritOfThreads, IsTheRankWhoseWorkFailed) {
  const auto errors = errors_of(3, [&](Communicator& comm) {
    try {
      all_or_none(&comm, [&]() -> std::string {
        if (comm.rank() == 1) throw EnvironmentError("cannot write");
        return "";
      });
    } catch (const CommError&) {
      throw;
    } catch (const EnvironmentError& error) {
      EXPECT_STREQ(error.what(), "cannot write");
    }
  });
  EXPECT_EQ(blamed_by_each(errors), (std::vector<int>{1, -2, 1})) << errors[0];
}

TEST(CulpritOfTheControlPlane, IsWhoIsLostOrSilentOrHasFailed) {
  {
    Coordinator coordinator(with_token());
    const auto words = words_of_each(3, [&](int rank) {
      if (rank == 0) {
        Stranger dies(coordinator);
        dies.prove();
        dies.say(control::Frame{control::FrameType::join, 1, control::Join{0, 3, 5, "elsewhere", 77}.encode()});
        nap(0.1);
      } else if (rank == 1) {
        Session session(place_of(coordinator, 1, 3, 5));
      }
    });
    EXPECT_EQ(culprit_in(words[1]), 0) << words[1];
  }
  {
    Coordinator coordinator(with_token());
    const auto words = words_of_each(3, [&](int rank) {
      Session session(place_of(coordinator, rank, 3, 5));
      if (rank == 2) return session.fail("no more disk");
      session.get("never");
    });
    EXPECT_EQ(culprit_in(words[0]), 2) << words[0];
    EXPECT_EQ(culprit_in(words[1]), 2) << words[1];
  }
  {
    Coordinator coordinator(with_token());
    const auto words = words_of_each(3, [&](int rank) {
      Session session(place_of(coordinator, rank, 3, 5));
      if (rank == 1) return nap(0.6);
      session.barrier("in", 0.2);
    });
    // Of the two that wait the first to give up is seen to end by the other.
    EXPECT_EQ(culprit_of_errors(words), 1) << words[0] << "\n" << words[2];
  }
  {
    Coordinator coordinator(with_token());
    std::string error;
    std::jthread waits([&] {
      error = words_of([&] {
        Session session(place_of(coordinator, 0, 2, 5));
        session.get("nothing", 5);
      });
    });
    Stranger silent(coordinator);
    silent.prove();
    silent.say(control::Frame{control::FrameType::join, 1, control::Join{1, 2, 0.4, "elsewhere", 77}.encode()});
    waits.join();
    EXPECT_EQ(culprit_in(error), 1) << error;
  }
}

}  // namespace
}  // namespace lockstep::tests
