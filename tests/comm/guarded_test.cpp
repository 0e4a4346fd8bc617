// A guarded communicator: whatever the backend below it does or does not notice, waits end, and the right rank is
// named.
#include "comm/control/guarded.h"

#include "comm/control_ranks.h"
#include "comm/recorder.h"

namespace lockstep::tests {
namespace {

using control::CoordinatorOptions;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

// A backend that sees nothing: what it starts is done only when `finishes` says so, whatever the other ranks call.
class Blind final : public Communicator {
 public:
  using Finishes = std::function<bool(const Message& message)>;
  Blind(int rank, int size, Finishes finishes, std::string name = "world")
      : Communicator(rank, size, std::move(name), Device::cpu), finishes_(std::move(finishes)) {}

  Started start(const Message& message) override { return std::make_unique<Operation>(finishes_(message)); }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    const auto members = members_of(rank(), size(), place);
    const auto mine = std::find(members.begin(), members.end(), rank()) - members.begin();
    return std::make_unique<Blind>(static_cast<int>(mine), static_cast<int>(members.size()), finishes_, name);
  }

 private:
  class Operation final : public Pending {
   public:
    explicit Operation(bool done) : done_(done) {}
    bool done() override { return done_; }
    void wait() override {
      while (!done_) nap(1);  // for ever, as some do
    }

   private:
    bool done_;
  };
  Finishes finishes_;
};

bool never(const Message&) { return false; }
bool at_once(const Message&) { return true; }

struct World {
  Coordinator coordinator{CoordinatorOptions{.token = kToken}};

  // Each rank over a backend of its own making.
  std::vector<std::string> over(int ranks, const std::function<std::unique_ptr<Communicator>(int rank)>& backend,
                                const std::function<void(Communicator&, Session&)>& body, double deadline = 0.5) {
    return words_of_each(ranks, [&](int rank) {
      Session session(place_of(coordinator, rank, ranks, 5));
      Guarded comm(backend(rank), session, deadline);
      body(comm, session);
      session.leave();
    });
  }
  std::vector<std::string> over_blind(int ranks, const Blind::Finishes& finishes,
                                      const std::function<void(Communicator&, Session&)>& body, double deadline = 0.5) {
    return over(
        ranks, [&](int rank) { return std::make_unique<Blind>(rank, ranks, finishes); }, body, deadline);
  }
  std::vector<std::string> over_threads(int ranks, const std::function<void(Communicator&, Session&)>& body,
                                        double deadline = 0.5) {
    ThreadsWorld world(ranks);
    return over(
        ranks, [&](int rank) { return world.communicator(rank); }, body, deadline);
  }
};

TEST(Guarded, ComputesWhatTheBackendComputes) {
  World world;
  EXPECT_THAT(world.over_threads(
                  8,
                  [](Communicator& comm, Session&) {
                    const auto pair = comm.split([](int rank) { return Place{rank / 2, rank}; }, "pair");
                    const auto alone = comm.split([](int rank) { return Place{rank, 0}; }, "alone");
                    for (int i = 0; i < 50; ++i) {
                      Row x(DType::f32, 100, [&](std::int64_t) { return comm.rank(); });
                      const auto pending = comm.all_reduce(x);
                      Row y(DType::f32, 3, [&](std::int64_t) { return comm.rank(); });
                      pair->all_reduce(y)->wait();
                      pending->wait();
                      alone->barrier()->wait();
                      ASSERT_EQ(x[99], 28);
                      ASSERT_EQ(y[2], comm.rank() / 2 * 4 + 1);
                      Row z(DType::f32, 5, [&](std::int64_t) { return comm.rank(); });
                      if (pair->rank() == 0)
                        pair->send(z, 1)->wait();
                      else
                        pair->recv(z, 0)->wait();
                      ASSERT_EQ(z[4], comm.rank() / 2 * 2);
                    }
                    comm.barrier()->wait();
                  },
                  5),
              Each(""));
}

TEST(Guarded, ARankThatNeverCallsIsNamedOnAllRanks) {
  World world;
  const double seconds = seconds_of([&] {
    const auto words = world.over_threads(4, [](Communicator& comm, Session& session) {
      Row x(DType::f32, 1000);
      comm.broadcast(x, 1)->wait();
      if (comm.rank() == 2) {  // busy with something else
        EXPECT_TRUE(session.fails_within(5));
        comm.all_reduce(x)->wait();
      }
      comm.all_reduce(x)->wait();
    });
    EXPECT_THAT(words, Each(AllOf(HasSubstr("#2 of 'world', all_reduce of 1000 fp32 (sum, canonical), was not done "
                                            "within 0.5 s: rank 2 has not come to all_reduce #2 of 'world'; its last "
                                            "was broadcast #1 of 'world' (done), heard from 0."))));
  });
  EXPECT_LT(seconds, 3);
}

TEST(Guarded, ALateRankIsNoFailureBeforeTheDeadline) {
  World world;
  EXPECT_THAT(world.over_threads(
                  4,
                  [](Communicator& comm, Session&) {
                    if (comm.rank() == 3) nap(0.4);
                    comm.barrier()->wait();
                  },
                  3),
              Each(""));
}

TEST(Guarded, PollingHasADeadlineToo) {
  World world;
  const double seconds = seconds_of([&] {
    const auto words = world.over_blind(2, never, [](Communicator& comm, Session& session) {
      if (comm.rank() == 1) return void(session.fails_within(3));
      poll_a_barrier(comm);
    });
    EXPECT_THAT(words[0], HasSubstr("rank 1 has not come to barrier #1 of 'world'; no call yet"));
  });
  EXPECT_LT(seconds, 3);
}

TEST(Guarded, AMessageThatIsLostBelowIsToldThoughAllHaveCome) {
  World world;
  const auto words = world.over_blind(3, never, [](Communicator& comm, Session&) { comm.barrier()->wait(); });
  EXPECT_THAT(words, Each(AllOf(HasSubstr("barrier, was not done within 0.5 s: all ranks have come to barrier #1"),
                                HasSubstr("not done on ranks 0, 1, 2"))));
}

class GuardedMismatch : public ::testing::TestWithParam<MismatchCase> {};

// Below both a backend that waits for ever and one that thinks all is well.
TEST_P(GuardedMismatch, IsFoundThoughTheBackendDoesNotLook) {
  for (const auto& finishes : {never, at_once}) {
    World world;
    const double seconds = seconds_of([&] {
      const auto words = world.over_blind(
          3, finishes,
          [&](Communicator& comm, Session& session) {
            Row x(DType::f32, 12);
            GetParam().call(comm, x);
            EXPECT_TRUE(session.fails_within(3));
            comm.barrier()->wait();
          },
          5);
      EXPECT_THAT(words, Each(AllOf(HasSubstr("mismatched calls at #1 of 'world': rank "), GetParam().is_named())));
    });
    EXPECT_LT(seconds, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GuardedMismatch, ::testing::ValuesIn(mismatch_cases()), name_of_case);

TEST(Guarded, ASendAndItsRecvAreCompared) {
  World world;
  const auto words = world.over_blind(
      2, never, [](Communicator& comm, Session&) { send_more_than_is_received(comm); }, 5);
  EXPECT_THAT(words, Each(names_send_and_recv()));
}

TEST(Guarded, InAGroupTheRanksOfTheWorldAreNamed) {
  World world;
  const auto words = world.over_threads(6, [](Communicator& comm, Session& session) {
    const auto dp = comm.split([](int rank) { return Place{rank % 2, rank}; }, "dp");
    const auto again = comm.split([](int rank) { return Place{rank % 2, rank}; }, "dp");  // another of that name
    again->barrier()->wait();
    if (comm.rank() == 5) return void(session.fails_within(5));
    dp->barrier()->wait();
    if (comm.rank() % 2 == 0) return;  // their group is well
  });
  for (const std::size_t rank : {1u, 3u})
    EXPECT_THAT(words[rank], AllOf(HasSubstr("rank 5 has not come to barrier #1 of 'dp'; its last was barrier #1 of "
                                             "'dp' (done)")));
  for (const std::size_t rank : {0u, 2u, 4u}) EXPECT_EQ(words[rank], "") << rank;
}

TEST(Guarded, DivisionsThatDifferAreTold) {
  World world;
  const auto words = world.over_blind(
      4, never,
      [](Communicator& comm, Session&) {
        const auto part = comm.split([&](int rank) { return Place{comm.rank() == 1 ? 0 : rank / 2, 0}; }, "half");
        part->barrier()->wait();
      },
      5);
  EXPECT_THAT(words, Each(AllOf(HasSubstr("'half' a group of ranks 0, 1"), HasSubstr("ranks 0, 1, 2, 3"))));
}

TEST(Guarded, ARankThatEndsWhileOthersWaitIsNamedAtOnce) {
  World world;
  const double seconds = seconds_of([&] {
    const auto words = world.over_blind(
        3, never,
        [](Communicator& comm, Session&) {
          if (comm.rank() == 1) return;
          comm.barrier()->wait();
        },
        20);
    EXPECT_EQ(words[1], "");
    for (const std::size_t rank : {0u, 2u}) EXPECT_THAT(words[rank], HasSubstr("#1 of 'world', barrier: rank 1 has "));
  });
  EXPECT_LT(seconds, 3);
}

TEST(Guarded, ARankThatThrowsIsNamedAndTheOthersAreSecondary) {
  World world;
  std::atomic<int> secondary = 0;
  const auto words = words_of_each(4, [&](int rank) {
    Session session(place_of(world.coordinator, rank, 4, 5));
    Guarded comm(std::make_unique<Blind>(rank, 4, never), session, 20);
    try {
      const auto pending = comm.barrier();
      if (rank == 3) throw std::runtime_error("no more disk");
      pending->wait();
    } catch (const CommError& error) {
      secondary += error.secondary();
      throw;
    } catch (const std::exception& error) {
      session.fail(error.what());
      throw;
    }
  });
  EXPECT_EQ(words[3], "no more disk");
  for (const std::size_t rank : {0u, 1u, 2u})
    EXPECT_THAT(words[rank], AllOf(HasSubstr("rank 3 (host "), HasSubstr(") has failed: no more disk")));
  EXPECT_EQ(secondary, 3);
}

TEST(Guarded, ARankThatDropsAnOperationFailsTheOthers) {
  World world;
  const auto words = world.over_blind(
      3, never,
      [](Communicator& comm, Session& session) {
        if (comm.rank() == 1) {
          comm.barrier();
          return void(session.fails_within(3));
        }
        comm.barrier()->wait();
      },
      20);
  for (const std::size_t rank : {0u, 2u})
    EXPECT_THAT(words[rank], HasSubstr("rank 1 went away from #1 of 'world', barrier, before it was done"));
}

TEST(Guarded, AfterAFailureEveryCallThrowsTheSameWords) {
  World world;
  const auto words = world.over_blind(
      2, never,
      [](Communicator& comm, Session& session) {
        const auto part = comm.split([](int) { return Place{}; }, "part");
        session.barrier("divided");
        if (comm.rank() == 1) session.fail("over");
        const std::string first = words_of([&] { comm.barrier()->wait(); });
        const auto again = [&] { return words_of([&] { part->barrier()->wait(); }); };
        EXPECT_THAT(first, HasSubstr("over"));
        EXPECT_EQ(again(), first);
        EXPECT_EQ(again(), first);
        EXPECT_EQ(words_of([&] { comm.split([](int) { return Place{}; }, "more"); }), first);
      },
      20);
  EXPECT_THAT(words, Each(""));
}

// A backend whose connections break because a rank is gone: the rank is the cause, the broken connection is not.
TEST(Guarded, TheCauseIsToldRatherThanTheBackendsConsequence) {
  class Breaking final : public Communicator {
   public:
    Breaking(int rank, std::atomic<bool>& broken) : Communicator(rank, 3, "world", Device::cpu), broken_(broken) {}
    Started start(const Message&) override {
      class Operation final : public Pending {
       public:
        explicit Operation(std::atomic<bool>& broken) : broken_(broken) {}
        bool done() override { return broken_; }
        void wait() override { throw EnvironmentError("the backend: connection reset by peer"); }
        std::atomic<bool>& broken_;
      };
      return std::make_unique<Operation>(broken_);
    }
    std::unique_ptr<Communicator> split(const std::function<Place(int)>&, const std::string&) override { return {}; }
    std::atomic<bool>& broken_;
  };
  World world;
  std::atomic<bool> broken = false;
  const auto words = words_of_each(3, [&](int rank) {
    Session session(place_of(world.coordinator, rank, 3, 5));
    Guarded comm(std::make_unique<Breaking>(rank, broken), session, 20);
    const auto pending = comm.barrier();
    session.barrier("started");
    if (rank == 1) {
      broken = true;  // the others see it before this session's end is known
      nap(0.05);
      throw std::runtime_error("killed");
    }
    pending->wait();
  });
  for (const std::size_t rank : {0u, 2u})
    EXPECT_THAT(words[rank], AllOf(HasSubstr("rank 1 (host "), HasSubstr("closed its connection")));
}

TEST(Guarded, TwoBackendsShareASessionAndAreNotMixedUp) {
  World world;
  const auto words = world.over_blind(2, at_once, [](Communicator& first, Session& session) {
    Guarded second(std::make_unique<Blind>(first.rank(), 2, at_once), session, 5);
    Row x(DType::f32, 4);
    if (first.rank() == 0) first.all_reduce(x)->wait();
    second.barrier()->wait();
    if (first.rank() == 1) first.all_reduce(x)->wait();
    session.barrier("end");
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Guarded, WorksUnderARecorder) {
  ThreadsWorld threads(2);
  World again;
  EXPECT_THAT(words_of_each(2,
                            [&](int rank) {
                              Session session(place_of(again.coordinator, rank, 2, 5));
                              CommLog log;
                              Recorder comm(std::make_unique<Guarded>(threads.communicator(rank), session, 5), log);
                              Row x = row_of(DType::f32, 10, rank);
                              comm.all_reduce(x)->wait();
                              EXPECT_EQ(log.totals().size(), 1u);
                              session.barrier("end");
                              session.leave();
                            }),
              Each(""));
}

}  // namespace
}  // namespace lockstep::tests
