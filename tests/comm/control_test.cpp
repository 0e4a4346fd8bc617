// The control plane: ranks find each other, tell each other small things, and hear of each other's end.
#include "comm/control_ranks.h"

namespace lockstep::tests {
namespace {

using namespace lockstep::control;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Addresses.

TEST(ControlAddress, AllInterfacesAreRefused) {
  for (const char* address : {"0.0.0.0", "::", "::ffff:0.0.0.0", "0"})
    EXPECT_THAT(words_of([&] { Coordinator coordinator({.address = address, .token = kToken}); }),
                HasSubstr("would listen on all interfaces; name one"))
        << address;
}

TEST(ControlAddress, WhatIsNoneOfThisMachinesIsRefused) {
  EXPECT_THAT(words_of([] { Coordinator coordinator({.address = "198.51.100.7", .token = kToken}); }),
              HasSubstr("cannot listen on '198.51.100.7', port 0"));
  EXPECT_THAT(words_of([] { Coordinator coordinator({.address = "", .token = kToken}); }), HasSubstr("no address"));
  EXPECT_THAT(words_of([] { Coordinator coordinator({.port = 70000, .token = kToken}); }), HasSubstr("no port 70000"));
  Coordinator first(with_token());
  EXPECT_THAT(words_of([&] { Coordinator second({.port = first.port(), .token = kToken}); }),
              HasSubstr("a port that is free"));
}

TEST(ControlAddress, LoopbackByNameNumberAndInterface) {
  for (const char* address : {"127.0.0.1", "::1", "localhost", "lo"}) {
    std::unique_ptr<Coordinator> coordinator;
    try {
      coordinator = std::make_unique<Coordinator>(CoordinatorOptions{.address = address, .token = kToken});
    } catch (const UserError& error) {
      if (std::string(address) == "::1") continue;  // a machine without IPv6
      throw;
    }
    EXPECT_THAT(coordinator->address(), AnyOf("127.0.0.1", "::1"));
    Session session(place_of(*coordinator, 0, 1));
    session.leave();
  }
}

TEST(ControlAddress, AUselessOneIsToldAtOnce) {
  SessionOptions options{.address = "127.0.0.1", .port = 0, .token = kToken, .deadline_seconds = 5};
  EXPECT_LT(seconds_of([&] { EXPECT_THAT(words_of([&] { Session s(options); }), HasSubstr("no port 0")); }), 1);
  options.deadline_seconds = 0;
  EXPECT_THAT(words_of([&] { Session session(options); }), HasSubstr("a deadline of 0 s; give 0.05 to 86400"));
}

// Rendezvous.

TEST(ControlRendezvous, EightRanksFindEachOtherWhicheverComesFirst) {
  Coordinator coordinator(with_token());
  std::atomic<int> joined = 0;
  EXPECT_THAT(words_of_each(8,
                            [&](int rank) {
                              nap(0.01 * ((rank * 5) % 8));
                              Session session(place_of(coordinator, rank, 8));
                              ++joined;
                              session.barrier("all");
                              EXPECT_EQ(joined, 8);
                              session.leave();
                            }),
              Each(""));
  EXPECT_TRUE(coordinator.drain(1));
}

TEST(ControlRendezvous, TheCoordinatorMayStartLater) {
  int port = 0;
  { port = Coordinator(with_token()).port(); }
  std::unique_ptr<Coordinator> coordinator;
  std::jthread later([&] {
    nap(0.3);
    coordinator = std::make_unique<Coordinator>(CoordinatorOptions{.port = port, .token = kToken});
  });
  Session session({.port = port, .token = kToken, .deadline_seconds = 5});
  session.leave();
  later.join();
}

TEST(ControlRendezvous, NoCoordinatorAtTheDeadlineIsSaid) {
  int port = 0;
  { port = Coordinator(with_token()).port(); }
  const double seconds = seconds_of([&] {
    EXPECT_THAT(words_of([&] { Session session({.port = port, .token = kToken, .rank = 3, .deadline_seconds = 0.3}); }),
                AllOf(HasSubstr("rank 3 cannot reach the coordinator at 127.0.0.1"), HasSubstr("within 0.3 s"),
                      HasSubstr("refused"), HasSubstr("start it, or mend the address")));
  });
  EXPECT_LT(seconds, 1.5);
}

TEST(ControlRendezvous, WhoHasNotComeIsNamed) {
  Coordinator coordinator(with_token());
  const auto words = words_of_each(8, [&](int rank) {
    if (rank != 2 && rank != 5) Session session(place_of(coordinator, rank, 8, 0.4));
  });
  for (const int rank : {0, 1, 3, 4, 6, 7})
    EXPECT_THAT(words[static_cast<std::size_t>(rank)], HasSubstr("ranks 2 and 5 of 8 have not come within 0.4 s"));
}

TEST(ControlRendezvous, OneThatDiesOnTheWayIsNamedAtOnce) {
  Coordinator coordinator(with_token());
  const double seconds = seconds_of([&] {
    const auto words = words_of_each(3, [&](int rank) {
      if (rank == 0) {
        Stranger dies(coordinator);
        dies.prove();
        dies.say(Frame{FrameType::join, 1, Join{0, 3, 5, "elsewhere", 77}.encode()});
        nap(0.1);
      } else if (rank == 1) {
        Session session(place_of(coordinator, 1, 3, 5));
      }
    });
    EXPECT_THAT(words[1], HasSubstr("rank 0 (host elsewhere, process 77) closed its connection"));
  });
  EXPECT_LT(seconds, 2);
}

TEST(ControlRendezvous, WhoDoesNotFitIsRefusedAndTheOthersAreWell) {
  Coordinator coordinator(with_token());
  std::unique_ptr<Session> first;
  std::jthread waiting(
      [&] { EXPECT_EQ(words_of([&] { first = std::make_unique<Session>(place_of(coordinator, 0, 2)); }), ""); });
  nap(0.1);
  const auto refused = [&](int rank, int size, std::uint32_t epoch) {
    SessionOptions options = place_of(coordinator, rank, size);
    options.epoch = epoch;
    return words_of([&] { Session session(options); });
  };
  EXPECT_THAT(refused(0, 2, 1), AllOf(HasSubstr("rank 0 (host "), HasSubstr("has joined already; give every process")));
  EXPECT_THAT(refused(2, 2, 1), HasSubstr("rank 2 is none of a world of 2 ranks; they are 0 to 1"));
  EXPECT_THAT(refused(-1, 2, 1), HasSubstr("rank -1 is none"));
  EXPECT_THAT(refused(1, 3, 1), HasSubstr("rank 1 joins a world of 3 ranks, the others one of 2"));
  EXPECT_THAT(refused(0, 0, 1), HasSubstr("a world of 0 ranks"));
  EXPECT_THAT(refused(0, 1000000, 1), HasSubstr("a world of 1000000 ranks"));
  EXPECT_THAT(refused(1, 2, 0), HasSubstr("epoch 0, which is over; 1 is the current one"));
  EXPECT_THAT(refused(1, 2, 2), HasSubstr("while ranks still join epoch 1"));
  EXPECT_THAT(refused(1, 2, 7), HasSubstr("the next is 2"));
  Session second(place_of(coordinator, 1, 2));
  waiting.join();
  ASSERT_TRUE(first);
  EXPECT_THAT(refused(1, 2, 1), HasSubstr("has joined already"));
  words_of_each(2, [&](int rank) { (rank ? second : *first).leave(); });
}

// Epochs.

TEST(ControlEpoch, SurvivorsBeginTheNextOneAndTheOldCannotDisturbIt) {
  Coordinator coordinator(with_token());
  std::atomic<int> survivors = 0;
  const auto words = words_of_each(4, [&](int rank) {
    auto session = std::make_unique<Session>(place_of(coordinator, rank, 4));
    if (rank == 0) session->put("id", "of the first");
    session->barrier("in");
    if (rank == 2) return session->fail("a broken disk");
    EXPECT_TRUE(session->fails_within(2));
    EXPECT_THAT(words_of([&] { session->check(); }), AllOf(HasSubstr("rank 2 (host"), HasSubstr("a broken disk")));
    SessionOptions next = place_of(coordinator, rank < 2 ? rank : 2, 3);
    next.epoch = 2;
    Session again(next);
    ++survivors;
    session->fail("an old failure");  // of the old epoch: nobody's concern
    session.reset();
    EXPECT_THAT(words_of([&] { again.get("id", 0.1); }), HasSubstr("nobody has put 'id'"));
    again.barrier("asked");
    if (rank == 0) again.put("id", "of the second");
    EXPECT_EQ(again.get("id"), "of the second");
    again.barrier("in");
    again.leave();
  });
  EXPECT_THAT(words, Each(""));
  EXPECT_EQ(survivors, 3);
}

TEST(ControlEpoch, FramesOfAnotherEpochAreIgnored) {
  Coordinator coordinator(with_token());
  Stranger rank0(coordinator);
  rank0.prove();
  std::jthread other([&] {
    Session session(place_of(coordinator, 1, 2));
    nap(0.2);
    EXPECT_FALSE(session.failed());
    session.fail("end");
  });
  rank0.say(Frame{FrameType::join, 1, Join{0, 2, 5, "h", 1}.encode()});
  nap(0.05);
  rank0.say(Frame{FrameType::failed, 9, encode_failure({"from another time"})});
  other.join();
}

TEST(ControlEpoch, ARankThatWasNotTakenAlongIsTold) {
  Coordinator coordinator(with_token());
  std::vector<std::unique_ptr<Session>> old(2);
  words_of_each(2, [&](int rank) {
    old[static_cast<std::size_t>(rank)] = std::make_unique<Session>(place_of(coordinator, rank, 2));
  });
  SessionOptions next = place_of(coordinator, 0, 1);
  next.epoch = 2;
  Session alone(next);
  EXPECT_TRUE(old[1]->fails_within(1));
  EXPECT_THAT(words_of([&] { old[1]->check(); }), HasSubstr("epoch 2 has begun, and 1 is over"));
  SessionOptions late = place_of(coordinator, 1, 2);
  EXPECT_THAT(words_of([&] { Session session(late); }), HasSubstr("epoch 1, which is over"));
  alone.leave();
}

TEST(ControlEpoch, AFailedOneCannotBeJoined) {
  Coordinator coordinator(with_token());
  { Session session(place_of(coordinator, 0, 1)); }  // without goodbye
  nap(0.1);
  EXPECT_THAT(words_of([&] { Session session(place_of(coordinator, 0, 1)); }),
              AllOf(HasSubstr("epoch 1 is over"), HasSubstr("closed its connection"), HasSubstr("join epoch 2")));
}

// Values and barriers.

TEST(ControlValues, AreGotBeforeOrAfterTheyArePutWhateverTheirBytes) {
  Coordinator coordinator(with_token());
  std::string large(kMostBlob, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7);
  EXPECT_THAT(words_of_each(8,
                            [&](int rank) {
                              Session session(place_of(coordinator, rank, 8));
                              if (rank == 3) nap(0.1);
                              if (rank == 3) session.put("large", large);
                              EXPECT_EQ(session.get("large"), large);
                              session.put("mine " + std::to_string(rank), "");
                              EXPECT_EQ(session.get("mine " + std::to_string((rank + 1) % 8)), "");
                              session.barrier("end");
                              session.leave();
                            }),
              Each(""));
}

TEST(ControlValues, WhatIsWrongIsSaid) {
  Coordinator coordinator(with_token());
  Session session(place_of(coordinator, 0, 1));
  EXPECT_THROW(session.put("k", std::string(kMostBlob + 1, 'x')), ProgramError);
  EXPECT_THROW(session.put(std::string(300, 'k'), "x"), ProgramError);
  EXPECT_THROW(session.get("a\nb"), ProgramError);
  session.put("k", "one");
  session.put("k", "one");
  EXPECT_THAT(words_of([&] { session.put("k", "two"); }), HasSubstr("'k' has another value already"));
  const double seconds = seconds_of([&] {
    EXPECT_THAT(words_of([&] { session.get("nothing", 0.2); }), HasSubstr("nobody has put 'nothing' within 0.2 s"));
  });
  EXPECT_LT(seconds, 1);
  EXPECT_FALSE(session.failed());
  session.leave();
  EXPECT_THROW(session.get("k"), ProgramError);
}

TEST(ControlBarrier, NamesWhoHasNotCome) {
  Coordinator coordinator(with_token());
  const auto words = words_of_each(4, [&](int rank) {
    Session session(place_of(coordinator, rank, 4));
    session.barrier("a");
    session.barrier("a");  // again
    nap(0.05 * rank);      // each has its own deadline: the words are the same
    if (rank == 3) nap(0.6);
    const std::string words = words_of([&] {
      if (rank != 3) session.barrier("b", 0.3);
    });
    EXPECT_THAT(words, rank == 3 ? ::testing::Matcher<std::string>("")
                                 : HasSubstr("barrier 'b': rank 3 has not come within 0.3 s"));
    session.barrier("end");
    session.leave();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ControlBarrier, ARankThatHasEndedIsNamedAtOnce) {
  Coordinator coordinator(with_token());
  const double seconds = seconds_of([&] {
    const auto words = words_of_each(3, [&](int rank) {
      Session session(place_of(coordinator, rank, 3, 5));
      if (rank == 1) return session.leave();
      if (rank == 2) nap(0.2);
      session.barrier("b");
    });
    EXPECT_THAT(words, ::testing::ElementsAre(HasSubstr("rank 1 has ended and will not come"), "",
                                              HasSubstr("rank 1 has ended and will not come")));
  });
  EXPECT_LT(seconds, 2);
}

// Ends.

TEST(ControlEnd, ALeaveIsNoFailureForThoseWhoDoNotWait) {
  Coordinator coordinator(with_token());
  EXPECT_THAT(words_of_each(4,
                            [&](int rank) {
                              Session session(place_of(coordinator, rank, 4));
                              if (rank < 2) nap(0.3);
                              EXPECT_FALSE(session.failed());
                              session.leave();
                            }),
              Each(""));
  EXPECT_TRUE(coordinator.drain(1));
}

TEST(ControlEnd, AFailureReachesAllWithItsWordsAndIsSecondaryThere) {
  Coordinator coordinator(with_token());
  std::atomic<int> secondary = 0, primary = 0;
  const double seconds = seconds_of([&] {
    const auto words = words_of_each(8, [&](int rank) {
      Session session(place_of(coordinator, rank, 8, 5));
      session.barrier("in");
      if (rank == 6) session.fail("no such tokens");
      EXPECT_TRUE(session.fails_within(5));
      try {
        session.check();
      } catch (const CommError& error) {
        ++(error.secondary() ? secondary : primary);
        EXPECT_EQ(error.secondary(), rank != 6);
        throw;
      }
    });
    for (const std::size_t rank : {0u, 1u, 2u, 3u, 4u, 5u, 7u})
      EXPECT_THAT(words[rank], AllOf(HasSubstr("rank 6 (host "), HasSubstr(") has failed: no such tokens")));
    EXPECT_EQ(words[6], "no such tokens");
  });
  EXPECT_LT(seconds, 3);
  EXPECT_EQ(secondary, 7);
  EXPECT_EQ(primary, 1);
}

TEST(ControlEnd, TheLastWordsOfARankArriveThoughItEndsAtOnce) {
  for (int round = 0; round < 10; ++round) {
    Coordinator coordinator(with_token());
    const auto words = words_of_each(3, [&](int rank) {
      Session session(place_of(coordinator, rank, 3));
      if (rank == 0) return session.fail("the last words");
      session.get("never");
    });
    for (const std::size_t rank : {1u, 2u}) EXPECT_THAT(words[rank], HasSubstr("has failed: the last words"));
  }
}

TEST(ControlEnd, TheCoordinatorsEndIsToldAndEndsNoWaitLate) {
  auto coordinator = std::make_unique<Coordinator>(with_token());
  const double seconds = seconds_of([&] {
    const auto words = words_of_each(2, [&](int rank) {
      Session session(place_of(*coordinator, rank, 2, 5));
      session.barrier("in");
      if (rank == 0) coordinator.reset();
      session.get("never");
    });
    EXPECT_THAT(words, Each(AllOf(HasSubstr("the coordinator at 127.0.0.1, port "), HasSubstr("has ended"))));
  });
  EXPECT_LT(seconds, 3);
}

TEST(ControlEnd, DestructorsAreQuick) {
  auto coordinator = std::make_unique<Coordinator>(with_token());
  std::vector<std::unique_ptr<Session>> sessions(8);
  std::vector<Stranger> strangers;
  for (int i = 0; i < 8; ++i) strangers.emplace_back(*coordinator);
  words_of_each(8, [&](int rank) {
    sessions[static_cast<std::size_t>(rank)] = std::make_unique<Session>(place_of(*coordinator, rank, 8));
  });
  EXPECT_LT(seconds_of([&] { sessions[3].reset(); }), 0.6);
  EXPECT_LT(seconds_of([&] { coordinator.reset(); }), 1);
  for (auto& session : sessions) EXPECT_LT(seconds_of([&] { session.reset(); }), 0.6);
}

// Records.

Record call(std::uint64_t sequence, CommOp op = CommOp::all_reduce, std::int64_t count = 1000) {
  return {.group = 1, .sequence = sequence, .op = op, .count = count};
}

Record done(Record record) {
  record.done = true;
  return record;
}

TEST(ControlRecords, CallsThatDifferAreToldToAllWithBoth) {
  Coordinator coordinator(with_token());
  const auto words = words_of_each(4, [&](int rank) {
    Session session(place_of(coordinator, rank, 4));
    session.open_group("dp", "dp", {0, 1, 2, 3});
    for (std::uint64_t i = 1; i <= 11; ++i) {
      session.report(call(i));
      session.report(done(call(i)));
    }
    session.report(rank == 2 ? call(12, CommOp::all_gather) : call(12));
    EXPECT_TRUE(session.fails_within(2));
    session.check();
  });
  EXPECT_THAT(words, Each(AllOf(HasSubstr("mismatched calls at #12 of 'dp': rank "),
                                HasSubstr("called all_reduce of 1000 fp32 (sum, canonical)"),
                                HasSubstr("rank 2 called all_gather of 1000 fp32 (canonical)"))));
}

TEST(ControlRecords, WhereaboutsNameWhoHasNotComeAndItsLast) {
  Coordinator coordinator(with_token());
  const auto words = words_of_each(3, [&](int rank) {
    Session session(place_of(coordinator, rank, 3));
    session.open_group("dp", "dp", {0, 1, 2});
    session.report(call(11, CommOp::all_gather));
    session.report(done(call(11, CommOp::all_gather)));
    if (rank != 2) session.report(call(12));
    session.barrier("reported");
    const std::string where = session.whereabouts(call(12));
    EXPECT_THAT(where, HasSubstr("rank 2 has not come to all_reduce #12 of 'dp'; its last was all_gather #11 of 'dp' "
                                 "(done), heard from 0."));
    EXPECT_THAT(where, Not(HasSubstr("rank 1")));
    EXPECT_THAT(session.whereabouts(call(11)), HasSubstr("all ranks have come to all_reduce #11"));
    session.barrier("end");
    session.leave();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ControlRecords, ARankThatLeavesWhileOthersWaitForItIsNamed) {
  Coordinator coordinator(with_token());
  const auto words = words_of_each(3, [&](int rank) {
    Session session(place_of(coordinator, rank, 3, 5));
    session.open_group("dp", "dp", {0, 1, 2});
    session.report(call(1));
    session.report(done(call(1)));
    if (rank == 1) return session.leave();
    session.report(call(2));
    EXPECT_TRUE(session.fails_within(2));
    session.check();
  });
  for (const std::size_t rank : {0u, 2u})
    EXPECT_EQ(words[rank],
              "#2 of 'dp', all_reduce of 1000 fp32 (sum, canonical): rank 1 has ended and will not come (its last was "
              "all_reduce #1 of 'dp' (done))");
}

TEST(ControlRecords, TheirQueueIsBoundedAndKeepsTheLatestAndCostsTheCallerLittle) {
  Coordinator coordinator(with_token());
  Session session(place_of(coordinator, 0, 1));
  session.open_group("dp", "dp", {0});
  const int many = 200000;  // in a few milliseconds: far more than are sent meanwhile
  std::size_t most = 0;
  const double seconds = seconds_of([&] {
    for (int i = 1; i <= many; ++i) {
      session.report(call(static_cast<std::uint64_t>(i)));
      if (i % 1000 == 0) most = std::max(most, session.queued());
    }
  });
  RecordProperty("ns_a_report", static_cast<int>(seconds / many * 1e9));
  EXPECT_LT(seconds / many, 20e-6);
  EXPECT_LE(most, Session::kMostQueued);
  EXPECT_THAT(session.whereabouts(call(many)), HasSubstr("all ranks have come to all_reduce #200000"));
  EXPECT_FALSE(session.failed());
  session.leave();
}

}  // namespace
}  // namespace lockstep::tests
