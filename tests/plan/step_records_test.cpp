// What the training loop records of every rank and step: messages as meta counted them, and times that add up.
#include <gtest/gtest.h>

#include "base/median.h"
#include "comm/delayed.h"
#include "comm/threads/run_ranks.h"
#include "plan/plan.h"
#include "spec/layout/layout_toml.h"
#include "support/tiny_specs.h"
#include "train/loop.h"

namespace lockstep::tests {
namespace {

// One rank's own records.
struct RankBook final : Watcher {
  void stepped(const StepRecord& record) override { steps.push_back(record); }
  void timed(std::int64_t step, const std::vector<TimesByUse>& by_rank, const std::vector<SentByAxis>& own) override {
    EXPECT_EQ(step, steps.back().step);
    numbers.push_back(step);
    all.push_back(by_rank);
    times.push_back(by_rank.at(rank));
    sent.push_back(own);
  }
  std::size_t rank = 0;
  std::vector<std::vector<TimesByUse>> all;
  std::vector<StepRecord> steps;
  std::vector<std::int64_t> numbers;
  std::vector<TimesByUse> times;
  std::vector<std::vector<SentByAxis>> sent;
};

RunSpec recorded_run(const LayoutSpec& layout, std::int64_t width, std::int64_t steps) {
  RunSpec run;
  run.model = tiny_specs()[1].spec;
  run.model.heads = run.model.kv_heads = 8;
  run.model.head_width = width / 8;
  run.model.width = width;
  run.model.ffn_width = 2 * width;
  run.model.layers = 6;
  run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  run.data.seq = 16;
  run.train.global_batch = 8;
  run.train.steps = steps;
  run.train.eval_every = run.train.save_every = 0;
  run.train.save_last = false;
  run.run.threads = 1;
  run.layout = layout;
  return run;
}

using WrapRanks = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;

std::vector<RankBook> records_of(const RunSpec& spec, const WrapRanks& wrap = {}) {
  std::vector<RankBook> books(static_cast<std::size_t>(spec.layout.ranks()));
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> comm) {
    RankBook& book = books[static_cast<std::size_t>(comm->rank())];
    book.rank = static_cast<std::size_t>(comm->rank());
    if (wrap) comm = wrap(std::move(comm));
    TrainingRun run(spec, Device::cpu, "", {.ranks = spec.layout.ranks() > 1 ? comm.get() : nullptr});
    run.init_weights();
    Progress progress;
    train(run, progress, book);
  });
  return books;
}

constexpr const char* kRecordedLayouts[] = {"dp=1",
                                            "dp=1,micro=4",
                                            "dp=2",
                                            "dp=4,micro=2",
                                            "dp=8",
                                            "dp=4,dp_kind=central",
                                            "dp=4,bucket=0",
                                            "dp=4,overlap=off",
                                            "dp=2,zero=1",
                                            "dp=4,zero=2,micro=2",
                                            "dp=4,zero=3",
                                            "dp=4,zero=3,micro=2,reshard=never",
                                            "dp=4,zero=3,shard=2",
                                            "dp=4,zero=3,prefetch=0",
                                            "dp=4,zero=3,micro=2,prefetch=3,wrap=2+2+2",
                                            "dp=2,pp=2,micro=2,zero=3,wrap=1MiB",
                                            "tp=2",
                                            "tp=4,sp=off",
                                            "tp=8,tp_chunks=2",
                                            "dp=2,tp=2,zero=3",
                                            "pp=2,micro=4",
                                            "pp=4,micro=8",
                                            "pp=2,micro=4,schedule=afab",
                                            "pp=2,micro=4,schedule=zb-h1",
                                            "dp=2,pp=2,micro=2,zero=1",
                                            "pp=2,tp=2,micro=2",
                                            "cp=2",
                                            "cp=4",
                                            "cp=2,cp_kind=ulysses",
                                            "dp=2,cp=2,zero=2",
                                            "cp=2,tp=2",
                                            "pp=2,cp=2,micro=2",
                                            "dp=2,pp=2,cp=2,tp=2,micro=2,zero=3"};

TEST(StepRecords, HaveTheMessagesThatMetaCounted) {
  for (const char* text : kRecordedLayouts) {
    const LayoutSpec layout = parse_layout(text);
    const RunSpec spec = recorded_run(layout, 32, 2);
    const std::vector<RankBook> books = records_of(spec);
    for (std::size_t rank = 0; rank < books.size(); ++rank) {
      const StepMessages planned = plan_run(spec, static_cast<int>(rank)).messages;
      ASSERT_EQ(books[rank].numbers, (std::vector<std::int64_t>{1, 2})) << to_text(layout);
      for (const std::vector<SentByAxis>& step : books[rank].sent) {
        const std::string what = fmt::format("{}, rank {}", to_text(layout), rank);
        for (const MeshAxis axis : kMeshAxes) {
          const SentByAxis& sent = step.at(static_cast<std::size_t>(axis));
          EXPECT_EQ(sent.axis, name_of(axis));
          EXPECT_EQ(sent.calls, planned.total(axis).calls) << what << ", " << name_of(axis);
          EXPECT_EQ(sent.bytes, planned.total(axis).bytes_sent) << what << ", " << name_of(axis);
        }
        EXPECT_EQ(step.at(4).axis, "numbers");
        EXPECT_EQ(step.at(4).calls, planned.numbers.calls) << what;
        EXPECT_EQ(step.at(4).bytes, planned.numbers.bytes_sent) << what;
      }
    }
  }
}

TEST(StepRecords, HaveTimesThatAddUpToTheStep) {
  for (const LayoutSpec& layout :
       {LayoutSpec{}, {.dp = 2}, {.dp = 2, .zero = 3}, {.tp = 2}, {.cp = 2}, {.pp = 2, .micro = 4}}) {
    const std::vector<RankBook> books = records_of(recorded_run(layout, 128, 12));
    for (const RankBook& book : books) {
      double times = 0, steps = 0;
      std::vector<double> others;
      for (std::size_t i = 1; i < book.times.size(); ++i) {  // the first one has what came before it
        times += book.times[i].total();
        others.push_back(book.times[i][TimeUse::other] / book.times[i].total());
        steps += book.steps[i].seconds;
        ASSERT_EQ(book.all[i].size(), books.size());
        for (std::size_t rank = 0; rank < books.size(); ++rank)
          EXPECT_EQ(book.all[i][rank].seconds, books[rank].times[i].seconds) << "as that rank has told";
      }
      EXPECT_NEAR(times / steps, 1, 0.02) << to_text(layout);
      EXPECT_LT(median(std::move(others)), 0.02) << to_text(layout) << ": " << rank_json(12, book.times.back(), {});
      EXPECT_GT(book.times.back()[TimeUse::compute], 0);
      EXPECT_GT(book.times.back()[TimeUse::optimizer], 0);
      EXPECT_GT(book.times.back()[TimeUse::data], 0);
    }
  }
}

// On a slow link the time goes into waiting along the axis that uses it.
TEST(StepRecords, NameTheAxisThatIsWaitedFor) {
  struct Case {
    LayoutSpec layout;
    TimeUse use;
  };
  for (const Case& c : {Case{{.dp = 2}, TimeUse::wait_dp},
                        {{.dp = 2, .zero = 3}, TimeUse::wait_dp},
                        {{.tp = 2}, TimeUse::wait_tp},
                        {{.pp = 2, .micro = 2}, TimeUse::wait_pp},
                        {{.cp = 2}, TimeUse::wait_cp}}) {
    const RunSpec spec = recorded_run(c.layout, 32, 3);
    // Slow beside what this machine takes to compute, which a sanitizer makes much longer.
    const double step = records_of(spec).front().times.back().total();
    const double slower = std::max(1.0, step / 0.01);
    std::array<std::optional<SimulatedLink>, 2> links;
    for (auto& link : links) link.emplace(1e-3 * slower, (c.use == TimeUse::wait_cp ? 1e6 : 1e7) / slower);
    const std::vector<RankBook> books = records_of(spec, [&](std::unique_ptr<Communicator> comm) {
      SimulatedLink& link = *links[static_cast<std::size_t>(comm->rank())];
      return std::make_unique<Delayed>(std::move(comm), link);
    });
    for (const RankBook& book : books) {
      const TimesByUse& times = book.times.back();
      EXPECT_GT(times[c.use], times.total() / 2) << to_text(c.layout) << ": " << rank_json(3, times, {});
    }
  }
}

// A rank that computes longer is the slowest one, though the others' steps take as long as its own.
TEST(StepRecords, NameTheSlowestRank) {
  std::vector<TimesByUse> times(3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    times[rank][TimeUse::compute] = rank == 1 ? 2 : 1;
    times[rank][TimeUse::wait_dp] = rank == 1 ? 0 : 1;
  }
  times[2][TimeUse::save] = 10;
  EXPECT_EQ(slowest_rank(times), 1);
  const UseOverRanks computing = over_ranks(times, TimeUse::compute);
  EXPECT_DOUBLE_EQ(computing.mean, 4.0 / 3);
  EXPECT_EQ(computing.most, 2);
  EXPECT_EQ(computing.rank, 1);
}

TEST(StepRecords, AreSummedUpInOneLine) {
  TimesByUse times;
  EXPECT_EQ(shares_text(times), "");
  times[TimeUse::optimizer] = 0.5;
  times[TimeUse::compute] = 7.2;
  times[TimeUse::wait_pp] = 2.25;
  times[TimeUse::other] = 0.05;
  EXPECT_EQ(shares_text(times), "compute 72%, wait_pp 22%, optimizer 5%");
}

}  // namespace
}  // namespace lockstep::tests
