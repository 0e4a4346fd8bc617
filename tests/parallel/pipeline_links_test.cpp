// What stages send each other: in order, at most kSendsInFlight to a stage under way, and waited for where it is read.
#include "parallel/pipeline_links.h"

#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "support/noted_ranks.h"

namespace lockstep::tests {
namespace {

constexpr int kMicro = 5;
constexpr std::int64_t kSentElements = 33;

// Every stage adds its number to what comes from the stage before and hands it on.
TEST(PipelineLinks, CarryMicroBatchesThroughTheStagesInOrder) {
  for (const int stages : {2, 3, 5})
    each_rank(stages, [&](Communicator& group) {
      PipelineLinks links(group);
      const int stage = group.rank();
      std::vector<Row> all;
      for (int m = 0; m < kMicro; ++m) all.push_back(row_of(DType::f64, kSentElements, m));
      const auto input = [&](int m) { return Action{ActionKind::receive_input, stage, m}; };
      // All are asked for before the first is read.
      if (stage > 0)
        for (int m = 0; m < kMicro; ++m) links.receive(input(m), all[m], stage - 1);
      for (int m = 0; m < kMicro; ++m) {
        links.ready(input(m));
        links.ready(input(m));  // once more: at once
        for (std::int64_t i = 0; i < kSentElements; ++i) {
          ASSERT_EQ(all[m][i], whole(m, i) + stage * (stage - 1) / 2) << "stage " << stage << ", micro-batch " << m;
          all[m].set(i, all[m][i] + stage);
        }
        if (stage + 1 < stages) links.send(all[m], stage + 1);
      }
      links.settle();
    });
}

TEST(PipelineLinks, WaitForTheOldestOfTwoMessagesToAStage) {
  static_assert(kSendsInFlight == 2);
  using Notes = std::vector<std::string>;
  each_rank(3, [](Communicator& group) {
    Notes notes;
    NotedRanks noted(group, notes);
    PipelineLinks links(noted);
    std::vector<Row> all;
    for (int m = 0; m < 4; ++m) all.push_back(row_of(DType::f64, kSentElements, m));
    Row empty(DType::f64, 0);
    if (group.rank() == 0) {
      for (int m = 0; m < 3; ++m) links.send(all[m], 1);
      links.send(all[3], 2);  // to another stage: nothing to wait for
      links.send(empty, 1);   // nothing to send
      EXPECT_EQ(notes, (Notes{"start 0", "start 1", "wait 0", "start 2", "start 3"}));
      links.settle();
      EXPECT_EQ(notes, (Notes{"start 0", "start 1", "wait 0", "start 2", "start 3", "wait 1", "wait 2", "wait 3"}));
      return;
    }
    const int first = group.rank() == 1 ? 0 : 3, end = group.rank() == 1 ? 3 : 4;
    for (int m = first; m < end; ++m) {
      for (std::int64_t i = 0; i < kSentElements; ++i) all[m].set(i, -1);
      links.receive({ActionKind::receive_input, 0, m}, all[m], 0);
    }
    links.receive({ActionKind::receive_input, 1, 0}, empty, 0);
    links.ready({ActionKind::receive_input, 1, 0});  // of nothing: at once
    links.settle();
    for (int m = first; m < end; ++m)
      for (std::int64_t i = 0; i < kSentElements; ++i) ASSERT_EQ(all[m][i], whole(m, i));
  });
}

}  // namespace
}  // namespace lockstep::tests
