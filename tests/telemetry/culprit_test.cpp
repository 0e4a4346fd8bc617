// Whom a fault is put down to: every text that blames a rank is understood, those that blame nobody blame nobody, and
// of several faults the cause is found among its consequences. tests/comm/control_culprit_test.cpp has texts that are
// made by real failures.
#include "telemetry/culprit.h"

#include <gtest/gtest.h>

namespace lockstep::tests {
namespace {

struct Blamed {
  const char* text;
  int rank;
  Blame blame;
};

TEST(Culprit, IsTheRankThatTheTextBlames) {
  const Blamed all[] = {
      {"rank 2 (process 4711) is gone; last in all_reduce #3 of 'dp', not done", 2, Blame::seen},
      {"rank 1: rank 2 (process 4711) is gone; last in all_reduce #3 of 'dp', done", 2, Blame::seen},
      {"rank 0 has failed: rank 2 (process 4711) is gone; no call yet", 2, Blame::seen},
      {"rank 12 (host a, process 7) has not been heard from for 30.1 s", 12, Blame::seen},
      {"rank 3 (host elsewhere, process 77) closed its connection", 3, Blame::seen},
      {"the coordinator at ::1, port 7, in the process of rank 0 (host a, process 7), closed its connection", 0,
       Blame::seen},
      {"rank 2 on host-b was ended by signal 9 (Killed) after step 40", 2, Blame::seen},
      {"rank 2 was ended by signal 11 (Segmentation fault)", 2, Blame::seen},
      {"rank 5 on b (process 12) has been stopped for 6 s", 5, Blame::seen},
      {"rank 5 (process 12) has not been heard from for 6 s", 5, Blame::seen},
      {"rank 5 (process 12 on b) has said nothing for 31.0 s; it was in forward block.3 of step 17", 5, Blame::seen},
      {"rank 3 (process 9) has been in forward block.3 of step 17 for 34 s, longer than 10 s", 3, Blame::late},
      {"rank 3 (process 9 on a) has been between two steps of step 17 for 134 s", 3, Blame::late},
      {"#41 of 'dp', all_reduce of 12 fp32 (sum, canonical): rank 1 has not come within 30 s; rank 0: last in "
       "all_reduce "
       "#41 of 'dp', not done; rank 1: last in all_reduce #40 of 'dp', done; rank 2: no call yet",
       1, Blame::late},
      {"rank 0 has failed: #41 of 'dp', barrier: rank 1 has not come within 30 s; rank 0: no call yet", 1, Blame::late},
      {"barrier 'start': rank 2 has not come within 0.5 s", 2, Blame::late},
      {"rank 2 of 8 has not come within 0.4 s; start them, with this address and epoch 1", 2, Blame::late},
      {"all_reduce in 'dp' was not done within 3 s: rank 1 has not come to all_reduce #4 of 'dp'; its last was barrier "
       "#3 of 'dp' (done), heard from 0.1 s ago",
       1, Blame::late},
      {"rank 3 has failed: no such tokens; look again", 3, Blame::failed},
      {"rank 3 (host a, process 7) has failed: no more disk", 3, Blame::failed},
      {"#2 of 'world', barrier: rank 1 has failed (odd) and will not come (no call yet)", 1, Blame::failed},
      {"rank 1 has failed: rank 2 has failed: no more disk", 2, Blame::failed},
      {"checkpoint not saved: rank 2: /runs/a/x: write failed: No space left on device", 2, Blame::failed},
      {"rank 1: odd", 1, Blame::failed},
      {"#2 of 'dp', barrier: rank 1 has ended and will not come (last in barrier #1 of 'dp', done)", 1, Blame::left},
      {"#2 of 'dp', barrier: rank 1 has left the group and will not come", 1, Blame::left},
      {"rank 1 went away from #7 of 'dp', barrier before it was done", 1, Blame::left},
      {"rank 0: rank 1 went away from #7 of 'dp', barrier before it was done", 1, Blame::left},
      {"rank 0 has failed: rank 1 went away from #7 of 'dp', barrier before it was done", 1, Blame::left},
  };
  for (const Blamed& one : all) {
    const auto blamed = blamed_in(one.text);
    ASSERT_TRUE(blamed) << one.text;
    EXPECT_EQ(blamed->rank, one.rank) << one.text;
    EXPECT_EQ(blamed->blame, one.blame) << one.text;
    // As the loop and the watchdog pass it on.
    const std::string longer = std::string(one.text) +
                               "; the last of rank 7: all_reduce #3 of 'dp' done; after step 12: the newest checkpoint "
                               "is of step 10";
    EXPECT_EQ(culprit_in(longer), one.rank) << longer;
  }
}

TEST(Culprit, IsNobodyWhereTheTextBlamesNobody) {
  for (const char* text : {
           "",
           "rank",
           "rank ",
           "rank x is gone",
           "rank -1 is gone",
           "rank 99999999999999999999 is gone",
           "frank 2 is gone",
           "step 7: a value is not finite, nothing was updated; the first was gradient h.0.attn on rank 2",
           "#7 of 'dp', barrier: ranks 1, 3 have not come within 30 s; rank 0: last in barrier #7 of 'dp', not done; "
           "rank "
           "1: no call yet; rank 3: no call yet",
           "ranks 2 and 5 of 8 have not come within 0.4 s; start them, with this address and epoch 1",
           "mismatched calls at #2 of 'world': rank 0 called barrier, rank 2 called all_reduce of 12 fp32",
           "rank 1 has failed: mismatched calls at #2 of 'world': rank 0 called barrier, rank 2 called broadcast",
           "mismatched calls at #2 of 'world': rank 1 has room for 5 elements of an all_to_all in which the ranks "
           "together give it 6",
           "rank 3 divides 'world' into a 'halves' of 3 ranks, the others into a 'halves' of 2 ranks, or of other "
           "ranks",
           "#7 of 'dp', barrier: all ranks have come, but it is not done within 30 s; rank 0: no call yet",
           "rank 1 of 'dp': all_reduce #3: not done within 30 s; one or more of the other ranks of 'dp' (4 in all) did "
           "not "
           "come, or are gone; NCCL_DEBUG=INFO shows what NCCL waits for",
           "rank 2: nobody has put 'x' within 3 s",
           "rank 1 (host b) cannot reach rank 0 (host a) at ::1, port 7 (refused); open the port",
           "rank 1 (host b) and rank 0 (host a) are not connected within 30 s; open the port",
           "host b is lost: nothing was heard of it for 6 s after step 12",
           "rank 0 has ended with exit code 5 after step 12",
           "the process of the ranks was ended by signal 9 (Killed)",
           "checkpoint not saved: /runs/a: write failed: No space left on device",
           "the coordinator at ::1, port 7 has ended",
       })
    EXPECT_EQ(culprit_in(text), std::nullopt) << text;
}

TEST(Culprit, OfSeveralFaultsIsTheCauseAndNotItsVictims) {
  const auto late = [](int missing) {
    return "#7 of 'pp', recv of 8 fp32: rank " + std::to_string(missing) + " has not come within 3 s; no call yet";
  };
  // A row of stages: each waits for the next, and the last one for a rank that says nothing.
  const ToldFault row[] = {{.rank = 0, .text = late(1)}, {.rank = 1, .text = late(2)}, {.rank = 2, .text = late(3)}};
  EXPECT_EQ(culprit_of(row), 3);
  // What was seen counts more than what is missed, in whichever order they are told.
  const ToldFault seen[] = {{.rank = 0, .text = late(1)},
                            {.rank = 3, .text = "rank 2 (process 7) is gone; no call yet"},
                            {.rank = 1, .text = late(0)}};
  EXPECT_EQ(culprit_of(seen), 2);
  // Its own words: it knew that it is to blame.
  const ToldFault own[] = {{.rank = 0, .text = "rank 1 went away from #2 of 'dp', barrier before it was done"},
                           {.rank = 2, .culprit = 2, .text = "cannot read tokens"},
                           {.rank = 1, .text = late(2)}};
  EXPECT_EQ(culprit_of(own), 2);
  // A victim that has told why it ends is seen to end by the others.
  const ToldFault ended[] = {{.rank = 0, .text = "rank 2 (host a, process 7) closed its connection"},
                             {.rank = 3, .text = "rank 2 (process 7) is gone; no call yet"},
                             {.rank = 2, .text = late(1)}};
  EXPECT_EQ(culprit_of(ended), 1);
  // Most of them, where they are as sure as each other.
  const ToldFault most[] = {{.rank = 0, .text = late(4)}, {.rank = 1, .text = late(5)}, {.rank = 2, .text = late(5)}};
  EXPECT_EQ(culprit_of(most), 5);
  // Each blames the other: the first word counts.
  const ToldFault circle[] = {{.rank = 0, .text = late(1)}, {.rank = 1, .text = late(0)}};
  EXPECT_EQ(culprit_of(circle), 1);
  EXPECT_EQ(culprit_of({}), std::nullopt);
  const ToldFault nobody[] = {{.rank = 0, .text = "mismatched calls at #2: rank 0 called barrier, rank 1 called send"}};
  EXPECT_EQ(culprit_of(nobody), std::nullopt);
}

TEST(Culprit, IsWhoseStateHashesTellApart) {
  EXPECT_EQ(culprit_in("rank 2 (host b): its state differs from 2 replicas' at step 120: tensor group block 3: m"), 2);
  EXPECT_EQ(culprit_in("rank 0: rank 1 (host b): its state changed between two updates, after that of step 3: tensor "
                       "group block 3: m; its memory or processor may be failing"),
            1);
  EXPECT_EQ(culprit_in("rank 0: the state of ranks 0-1 differs at step 3: tensor group head: m; with as many replicas "
                       "on either side nobody can tell whose is wrong"),
            std::nullopt);
}

TEST(Culprit, IsLookedForInAnyBytes) {
  const std::string text =
      "rank 0 has failed: #4 of 'dp': rank 1 (process 12) has not come within 3 s; rank 2: rank 3 is gone";
  for (std::size_t begin = 0; begin < text.size(); ++begin)
    for (std::size_t size = 0; begin + size <= text.size(); ++size)
      blamed_in(std::string_view(text).substr(begin, size));
  for (int byte = 0; byte < 256; ++byte) {
    std::string other;
    for (int i = 0; i < 50; ++i) other += "rank 1 (" + std::string(1, static_cast<char>(byte)) + " on of has failed: ";
    blamed_in(other);
  }
}

}  // namespace
}  // namespace lockstep::tests
