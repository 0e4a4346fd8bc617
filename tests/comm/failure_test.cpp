// Nobody waits for ever: who did not come, who called something else and who is gone is named, on every rank.
#include "comm/failure_cases.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class Mismatch : public ::testing::TestWithParam<MismatchCase> {};

TEST_P(Mismatch, IsNamedOnAllRanks) {
  for (const double late : {0.0, 0.05}) {  // first or last to come
    const double seconds = seconds_of([&] {
      const auto errors = errors_of(3, [&](Communicator& comm) {
        Row before(DType::f32, 10, [](std::int64_t) { return 1.0; }), x = row_of(DType::f32, 12, comm.rank());
        comm.all_reduce(before)->wait();
        if (comm.rank() == 2) nap(late);
        GetParam().call(comm, x);
      });
      EXPECT_THAT(errors, Each(AllOf(HasSubstr("mismatched calls at #2 of 'world'"), GetParam().is_named())));
    });
    EXPECT_LT(seconds, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Mismatch, ::testing::ValuesIn(mismatch_cases()), name_of_case);

TEST(Mismatched, AllToAllThatDoesNotAddUp) {
  const auto errors = errors_of(3, [&](Communicator& comm) {
    Row in(DType::f32, 6), out(DType::f32, comm.rank() == 1 ? 5 : 6);
    comm.all_to_all(out, in, {2, 2, 2})->wait();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1 has room for 5"), HasSubstr("give it 6"))));
}

TEST(Mismatched, SendAndRecv) { EXPECT_THAT(errors_of(2, send_more_than_is_received), Each(names_send_and_recv())); }

TEST(Mismatched, Divisions) {
  const auto errors = errors_of(4, [&](Communicator& comm) {
    const auto part = comm.split([&](int rank) { return Place{comm.rank() == 3 ? 0 : rank / 2, 0}; }, "halves");
    if (comm.rank() == 3) return;
    comm.barrier()->wait();
    part->barrier()->wait();
  });
  for (const int rank : {0, 1, 2}) EXPECT_NE(errors[static_cast<std::size_t>(rank)], "") << rank;
}

// The deadline.

TEST(Late, ARankThatDoesNotComeIsNamedWithItsLastCall) {
  const double seconds = seconds_of([] {
    const auto errors = errors_of(4,
                                  [&](Communicator& comm) {
                                    Row x = row_of(DType::f32, 1000, comm.rank());
                                    comm.broadcast(x, 1)->wait();
                                    if (comm.rank() == 2) nap(0.9);
                                    comm.all_reduce(x)->wait();
                                  },
                                  {.deadline_seconds = 0.3});
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("#2 of 'world', all_reduce of 1000 fp32 (sum, canonical)"),
                                   HasSubstr("rank 2 has not come within 0.3 s"),
                                   HasSubstr("rank 2: last in broadcast #1 of 'world', done"),
                                   HasSubstr("rank 0: last in all_reduce #2 of 'world', not done"))));
  });
  EXPECT_LT(seconds, 3);
}

TEST(Late, SeveralAreNamedAndPollingHasADeadlineToo) {
  const auto errors = errors_of(4,
                                [&](Communicator& comm) {
                                  if (comm.rank() % 2 == 1) return nap(0.6);
                                  poll_a_barrier(comm);
                                },
                                {.deadline_seconds = 0.3});
  EXPECT_THAT(errors[0], AllOf(HasSubstr("ranks 1, 3 have not come"), HasSubstr("rank 1: no call yet")));
  EXPECT_EQ(errors[0], errors[2]);
}

TEST(Late, ASendThatNobodyReceives) {
  const auto errors = errors_of(3,
                                [&](Communicator& comm) {
                                  Row x(DType::f32, 8);
                                  if (comm.rank() == 0) comm.send(x, 2)->wait();
                                  if (comm.rank() == 2) nap(0.5);
                                },
                                {.deadline_seconds = 0.2});
  EXPECT_THAT(errors[0], AllOf(HasSubstr("send of 8 fp32 to 2"), HasSubstr("rank 2 has not come")));
}

TEST(Late, InAGroupTheRanksOfTheWorldAreNamed) {
  const auto errors = errors_of(6,
                                [&](Communicator& comm) {
                                  const auto dp = comm.split([](int rank) { return Place{rank % 2, rank}; }, "dp");
                                  if (comm.rank() == 5) return nap(0.5);
                                  dp->barrier()->wait();
                                },
                                {.deadline_seconds = 0.2});
  EXPECT_EQ(errors[0] + errors[2] + errors[4], "");  // the other group is well
  for (const std::size_t rank : {1u, 3u}) EXPECT_THAT(errors[rank], HasSubstr("of 'dp', barrier: rank 5 has not come"));
}

// Ranks that end.

TEST(Gone, ARankThatEndedIsNamedAtOnce) {
  const double seconds = seconds_of([] {
    const auto errors = errors_of(3, [&](Communicator& comm) {
      if (comm.rank() == 1) return;
      Row x(DType::f32, 8);
      comm.all_reduce(x)->wait();
    });
    EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1"), HasSubstr("will not come"), HasSubstr("all_reduce")));
    EXPECT_EQ(errors[0], errors[2]);
  });
  EXPECT_LT(seconds, 5);  // the deadline is 30
}

TEST(Gone, ARankThatEndedLongBeforeIsNamedAtOnceToo) {
  const double seconds = seconds_of([] {
    const auto errors = errors_of(3, [&](Communicator& comm) {
      if (comm.rank() == 1) return;
      nap(0.1);
      comm.barrier()->wait();
    });
    EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1"), HasSubstr("will not come"), HasSubstr("barrier")));
    EXPECT_EQ(errors[0], errors[2]);
  });
  EXPECT_LT(seconds, 5);
}

TEST(Gone, ARankThatLeavesOneGroupFailsThatGroupAlone) {
  const auto errors = errors_of(3, [&](Communicator& comm) {
    auto part = comm.split([](int) { return Place{}; }, "part");
    if (comm.rank() == 1) {
      part.reset();
    } else {
      EXPECT_THROW(part->barrier()->wait(), CommError);
      EXPECT_THROW(part->barrier()->wait(), CommError);  // and again
    }
    comm.barrier()->wait();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Gone, ARankThatDropsAnOperationTakesNobodysMemoryAway) {
  const auto errors = errors_of(3, [&](Communicator& comm) {
    Row kept = row_of(DType::f32, 300007, comm.rank());
    {
      Row x = row_of(DType::f32, 300007, comm.rank());
      if (comm.rank() == 1) {
        comm.all_reduce(x);  // dropped: begun by all, or by this one alone, as it happens
        return;
      }
      comm.all_reduce(x)->wait();
    }
    comm.all_reduce(kept)->wait();
  });
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(errors[2], HasSubstr("rank 1"));
}

// run_ranks.

template <class Error>
std::string thrown(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(RunRanks, BringsBackTheCauseAndNotItsConsequences) {
  for (int round = 0; round < 20; ++round) {
    const double seconds = seconds_of([] {
      const std::string what = thrown<UserError>([] {
        run_ranks(4, [](std::unique_ptr<Communicator> comm) {
          const auto part = comm->split([](int rank) { return Place{rank / 2, 0}; }, "part");
          Row x(DType::f32, 10);
          const auto pending = comm->all_reduce(x);
          if (comm->rank() == 3) throw UserError(ExitCode::bad_input_file, "no such tokens", "look again");
          pending->wait();
          part->barrier()->wait();
          comm->barrier()->wait();
        });
      });
      EXPECT_EQ(what, "rank 3: no such tokens; look again");
    });
    EXPECT_LT(seconds, 5);
  }
}

TEST(RunRanks, KeepsTheKindOfError) {
  EXPECT_EQ(thrown<ProgramError>([] { each_rank(3, [](Communicator&) { throw ProgramError("a bug"); }); }).substr(6),
            ": a bug");
  EXPECT_EQ(thrown<EnvironmentError>([] {
              each_rank(3, [](Communicator& c) {
                if (c.rank() == 1) throw std::runtime_error("odd");
                c.barrier()->wait();
              });
            }),
            "rank 1: odd");
  EXPECT_EQ(thrown<EnvironmentError>([] { each_rank(2, [](Communicator&) { throw 7; }); }).substr(6),
            ": an exception without a message");
  // Of one rank alone nobody asks which it was.
  EXPECT_EQ(thrown<EnvironmentError>([] { each_rank(1, [](Communicator&) { throw EnvironmentError("gone"); }); }),
            "gone");
}

TEST(RunRanks, AFailureReachesRanksThatWaitForOthers) {
  const double seconds = seconds_of([] {
    const std::string what = thrown<EnvironmentError>([] {
      each_rank(4, [](Communicator& comm) {
        Row x(DType::f32, 1);
        const auto pair = comm.split([](int rank) { return Place{rank / 2, 0}; }, "pair");
        if (comm.rank() == 3) throw std::runtime_error("gone");
        if (comm.rank() == 0) comm.recv(x, 1)->wait();  // which never sends, being stuck itself
        if (comm.rank() == 1) comm.recv(x, 0)->wait();
        if (comm.rank() == 2) pair->barrier()->wait();
      });
    });
    EXPECT_EQ(what, "rank 3: gone");
  });
  EXPECT_LT(seconds, 5);
}

// Broken calls are the program's own mistakes, told before anything is sent.
TEST(BrokenCalls, AreRefused) {
  each_rank(1, [](Communicator& comm) {
    Row x(DType::f32, 10), y(DType::f64, 10), short_one(DType::f32, 9), ints(DType::i32, 4);
    EXPECT_THROW(comm.start({.op = CommOp::all_reduce, .out = y, .in = x}), ProgramError);
    EXPECT_THROW(comm.start({.op = CommOp::all_reduce, .out = short_one, .in = x}), ProgramError);
    EXPECT_THROW(comm.start({.op = CommOp::all_reduce, .in = x}), ProgramError);
    EXPECT_THROW(comm.all_reduce(ints, {.reduction = Reduction::mean}), ProgramError);
    EXPECT_THROW(comm.broadcast(x, 1), ProgramError);
    EXPECT_THROW(comm.broadcast(x, -1), ProgramError);
    EXPECT_THROW(comm.send(x, 0), ProgramError);
    EXPECT_THROW(comm.all_gather(x, x.part(0, 9)), ProgramError);
    EXPECT_THROW(comm.all_gather(x, x, {4, 6}), ProgramError);
    EXPECT_THROW(comm.all_reduce(static_cast<Tensor>(x).reshape({5, 2}).slice(1, 0, 1)), ProgramError);
    EXPECT_THROW(comm.all_reduce(Tensor(nullptr, DType::f32, Device::meta, {3})), ProgramError);
    EXPECT_THROW(comm.start({.op = CommOp::all_reduce, .out = x.part(1, 8), .in = x.part(0, 8)}), ProgramError);
  });
  EXPECT_THROW(ThreadsWorld(0), ProgramError);
  EXPECT_THROW(ThreadsWorld(100000), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
