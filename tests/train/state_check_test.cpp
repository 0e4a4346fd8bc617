// A bit of a rank's state that changes by itself ends the run before anything is saved, and the rank that has it is
// named where that can be known. What is right raises no alarm, and checking changes no bit.
#include "train/state_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ModelSpec eight_heads() {
  for (const NamedSpec& named : cut_specs())
    if (named.name == "llama_8_heads") return named.spec;
  throw ProgramError("there is no such model");
}

RunSpec checked_run(const LayoutSpec& layout, const PrecisionSpec& precision = {},
                    const ModelSpec& model = eight_heads()) {
  RunSpec spec;
  spec.model = model;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 6, .global_batch = 30, .keep = 100, .save_last = false};
  spec.precision = precision;
  spec.layout = layout;
  spec.run.threads = 1;
  spec.run.check_state = 2;
  return spec;
}

// The highest bit of an element's fraction: large enough not to be rounded away by the next update, and finite.
int fraction_bit(DType type) { return type == DType::f64 ? 51 : type == DType::f32 ? 22 : type == DType::bf16 ? 6 : 9; }

void flip(const Tensor& t, std::int64_t element) {
  const int bit = fraction_bit(t.dtype());
  auto* const at = static_cast<unsigned char*>(t.raw()) + element * size_of(t.dtype());
  at[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
}

// The first tensor of this kind with such a name, of a unit that this rank updates.
Tensor find_content(const Replica& replica, const std::string& part) {
  for (const StateHashes::Entry& entry : replica.state_hashes()->entries())
    if (entry.kind <= HashedKind::optimizer && entry.name.ends_with(": " + part)) return entry.content;
  return {};
}

struct Flip {
  int rank = 0;
  std::int64_t after = 3;  // step
  std::string part = "weights";
};

struct Outcome {
  std::vector<std::string> said;      // by rank, why it ended; empty: it did not
  std::vector<bool> secondary;        // it was another rank's failure
  std::vector<std::int64_t> reached;  // steps
  bool found = true;                  // there was such a tensor
  std::string primary() const {
    std::string all;
    for (std::size_t rank = 0; rank < said.size(); ++rank)
      if (!said[rank].empty() && !secondary[rank]) all += (all.empty() ? "" : " | ") + said[rank];
    return all;
  }
};

Outcome train_with(const RunSpec& spec, const std::optional<Flip>& flipped, const std::filesystem::path& folder = {}) {
  const int ranks = static_cast<int>(spec.layout.ranks());
  Outcome outcome;
  outcome.said.resize(static_cast<std::size_t>(ranks));
  outcome.secondary.resize(static_cast<std::size_t>(ranks));
  outcome.reached.resize(static_cast<std::size_t>(ranks));
  std::vector<int> secondary(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    TrainingRun run(spec, Device::cpu, folder, {.ranks = ranks > 1 ? group.get() : nullptr});
    run.init_weights();
    struct Flipping final : Watcher {
      std::function<void(std::int64_t)> after;
      void stepped(const StepRecord& record) override { after(record.step); }
    } watcher;
    watcher.after = [&](std::int64_t step) {
      if (!flipped || flipped->rank != static_cast<int>(rank) || step != flipped->after) return;
      const Tensor content = find_content(run.replica(), flipped->part);
      if (content.none())
        outcome.found = false;
      else
        flip(content, content.elements() / 2);
    };
    Progress progress = beginning(run);
    try {
      train(run, progress, watcher);
    } catch (const CommError& error) {
      outcome.said[rank] = error.what();
      secondary[rank] = error.secondary();
    } catch (const EnvironmentError& error) {
      outcome.said[rank] = error.what();
    }
    outcome.reached[rank] = progress.step;
  });
  for (std::size_t rank = 0; rank < outcome.said.size(); ++rank) outcome.secondary[rank] = secondary[rank] != 0;
  return outcome;
}

struct Case {
  const char* name;
  LayoutSpec layout;
  bool guarded = false;  // nobody else holds it: found by this rank alone
  bool decided = true;   // somebody can be blamed
  Precision precision = Precision::fp32;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const Case kCases[] = {
    {"One", {}, true},
    {"Dp2", {.dp = 2}, false, false},
    {"Dp3", {.dp = 3}},
    {"Dp5", {.dp = 5}},
    {"Zero1", {.dp = 3, .zero = 1}, true},
    {"Zero2", {.dp = 3, .zero = 2, .grad_sync = GradSync::micro}, true},
    {"Zero3", {.dp = 3, .zero = 3, .grad_sync = GradSync::micro}, true},
    {"Tp2Dp3", {.dp = 3, .tp = 2, .sp = Switch::on}},
    {"Pp2Dp3", {.dp = 3, .pp = 2, .micro = 2}},
    {"Cp3", {.cp = 3}},
    {"Dp3Bf16", {.dp = 3}, false, true, Precision::bf16},
    {"Zero3Bf16", {.dp = 2, .zero = 3, .grad_sync = GradSync::micro}, true, true, Precision::bf16},
};

class FlippedBit : public ::testing::TestWithParam<std::tuple<Case, const char*>> {};

TEST_P(FlippedBit, EndsTheRunAndNamesTheRank) {
  const auto& [c, part] = GetParam();
  const bool masters = c.precision == Precision::bf16;
  if (std::string(part) == "master weights" && !masters) GTEST_SKIP() << "weights are the masters";
  const bool guarded = c.guarded || (masters && std::string(part) == "weights");
  const int culprit = static_cast<int>(c.layout.ranks()) - 1;
  const Outcome o = train_with(checked_run(c.layout, c.precision), Flip{.rank = culprit, .after = 3, .part = part});
  ASSERT_TRUE(o.found);
  for (const std::int64_t step : o.reached) EXPECT_LE(step, 4);
  for (const std::string& said : o.said) EXPECT_NE(said, "") << "a rank went on";
  if (guarded) {
    EXPECT_THAT(o.primary(), StartsWith(fmt::format("rank {} (host ", culprit)));
    EXPECT_THAT(o.primary(), AllOf(HasSubstr("its state changed between two updates, after that of step 3"),
                                   HasSubstr(std::string(": ") + part)));
  } else if (c.decided) {
    EXPECT_THAT(o.primary(), StartsWith(fmt::format("rank {} (host ", culprit)));
    EXPECT_THAT(o.primary(), AllOf(HasSubstr(fmt::format("its state differs from {} replicas' at step 4: tensor group ",
                                                         c.layout.replicas() - 1)),
                                   Not(HasSubstr("; rank"))));
    EXPECT_FALSE(o.secondary[static_cast<std::size_t>(culprit)]);
  } else {
    EXPECT_THAT(o.primary(), StartsWith("the state of ranks 0-1 differs at step 4: tensor group "));
    EXPECT_FALSE(o.secondary[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, FlippedBit,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values("weights", "master weights", "m", "v")),
                         [](const auto& info) {
                           std::string part = std::get<1>(info.param);
                           std::erase(part, ' ');
                           return fmt::format("{}_{}", std::get<0>(info.param).name, part);
                         });

// Two copies of shards: nobody can say which is wrong; what is not copied is guarded.
TEST(StateCheck, ComparesTheCopiesOfHybridSharding) {
  const LayoutSpec layout{.dp = 4, .zero = 2, .grad_sync = GradSync::micro, .shard = 2};
  EXPECT_THAT(train_with(checked_run(layout), Flip{.rank = 3, .part = "m"}).primary(),
              StartsWith("the state of ranks 1, 3 differs at step 4: tensor group "));
}

// What a rank has updated and not yet published: all ranks would have it alike, and no comparison could find it.
TEST(StateCheck, FindsWhatChangesBetweenAnUpdateAndItsPublishing) {
  for (const int stage : {1, 2}) {
    RunSpec spec = checked_run({.dp = 3, .zero = stage, .grad_sync = stage == 1 ? GradSync::step : GradSync::micro});
    std::vector<std::string> said(3);
    run_ranks(3, [&](std::unique_ptr<Communicator> group) {
      TrainingRun run(spec, Device::cpu, {}, {.ranks = group.get()});
      run.init_weights();
      struct Flipping final : StepWatch {
        const StateHashes::Entry* own = nullptr;
        void comes_to(std::size_t) override {}
        void runs(const Action& action) override {
          if (own && action.kind == ActionKind::publish && action.unit == own->updated_by)
            flip(std::exchange(own, nullptr)->content, 7);
        }
        void is_done_with(const Action&) override {}
      } flipping;
      struct Showing final : Watcher {
        std::function<void(std::int64_t)> after;
        void stepped(const StepRecord& record) override { after(record.step); }
      } watcher;
      watcher.after = [&](std::int64_t step) { run.replica().show(step == 2 ? &flipping : nullptr); };
      if (group->rank() == 2)
        for (const StateHashes::Entry& entry : run.replica().state_hashes()->entries())
          if (!flipping.own && entry.name.ends_with(": own weights")) flipping.own = &entry;
      EXPECT_EQ(flipping.own != nullptr, group->rank() == 2);
      Progress progress = beginning(run);
      try {
        train(run, progress, watcher);
      } catch (const EnvironmentError& error) {
        said[static_cast<std::size_t>(group->rank())] = error.what();
      }
      EXPECT_LE(progress.step, 4);
    });
    EXPECT_THAT(said[2], AllOf(StartsWith("rank 2 (host "), HasSubstr(": own weights"),
                               HasSubstr("its state changed between two updates, after that of step 3")));
  }
}

// Nothing is written that was not checked, however seldom ranks compare.
TEST(StateCheck, ComesBeforeEverySave) {
  const TemporaryFolder folder;
  RunSpec spec = checked_run({.dp = 3});
  spec.train.save_every = 2;
  spec.train.save_last = true;
  spec.run.check_state = 100;
  const Outcome o = train_with(spec, Flip{.rank = 1}, folder.path());
  EXPECT_THAT(o.primary(), StartsWith("rank 1 (host "));
  EXPECT_EQ(steps_in(folder.path()), std::vector<std::int64_t>{2});
  EXPECT_THAT(train_with(spec, std::nullopt, folder.path()).primary(), "");
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{2, 4, 6}));
}

// A bit of an exponent makes values that are not finite: that is the memory's fault, not the learning rate's.
TEST(StateCheck, ComesBeforeABadValueIsBlamed) {
  RunSpec spec = checked_run({.dp = 3});
  spec.run.check_state = 100;
  const int ranks = 3;
  std::vector<std::string> said(ranks);
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, {}, {.ranks = group.get()});
    run.init_weights();
    struct Breaking final : Watcher {
      Tensor content;
      void stepped(const StepRecord& record) override {
        if (record.step == 2 && !content.none())
          for (std::int64_t i = 0; i < content.elements(); ++i) content.data<float>()[i] = 3e38F;
      }
    } watcher;
    if (group->rank() == 2) watcher.content = find_content(run.replica(), "weights");
    Progress progress = beginning(run);
    try {
      EXPECT_NE(train(run, progress, watcher), Ending::bad_values);
    } catch (const EnvironmentError& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  EXPECT_THAT(said, ::testing::Each(StartsWith("rank 2 (host ")));
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<std::byte>> state;  // by rank
  bool operator==(const Trained&) const = default;
};

Trained trained(RunSpec spec, std::int64_t every) {
  spec.run.check_state = every;
  const int ranks = static_cast<int>(spec.layout.ranks());
  Trained result;
  result.state.resize(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, {}, {.ranks = ranks > 1 ? group.get() : nullptr});
    run.init_weights();
    struct Losses final : Watcher {
      std::vector<double> all;
      void stepped(const StepRecord& record) override { all.push_back(record.loss); }
    } watcher;
    Progress progress = beginning(run);
    EXPECT_EQ(train(run, progress, watcher), Ending::finished);
    std::vector<std::byte>& mine = result.state[static_cast<std::size_t>(group->rank())];
    for (const StateTensor& t : run.replica().state()) {
      const std::size_t at = mine.size();
      mine.resize(at + static_cast<std::size_t>(t.live.bytes()));
      download(mine.data() + at, t.live, run.stream());
    }
    if (group->rank() == 0) result.losses = watcher.all;
  });
  return result;
}

// Every layout that holds something alike, in every precision, and every family where tp splits it: nothing differs,
// though it is compared after every step, and nothing is learned otherwise.
TEST(StateCheck, RaisesNoAlarmAndChangesNoBit) {
  std::vector<LayoutSpec> layouts;
  for (const Case& c : kCases) layouts.push_back(c.layout);
  layouts.push_back({.dp = 4, .zero = 1, .shard = 2});
  layouts.push_back({.dp = 4, .zero = 3, .grad_sync = GradSync::micro, .shard = 2});
  layouts.push_back({.dp = 3, .dp_kind = DpKind::central});
  layouts.push_back({.dp = 2, .tp = 4, .sp = Switch::off});
  layouts.push_back({.pp = 2, .cp = 2, .tp = 2, .sp = Switch::on, .micro = 2});
  layouts.push_back({.dp = 2, .pp = 2, .micro = 3, .zero = 3, .grad_sync = GradSync::micro});
  layouts.push_back({.dp = 4, .uneven = Switch::on});
  for (const ReduceKind reduce : {ReduceKind::ring, ReduceKind::tree}) {
    layouts.push_back({.dp = 5, .reduce = reduce});
    layouts.push_back({.dp = 2, .tp = 2, .sp = Switch::on, .reduce = reduce});
  }
  for (const LayoutSpec& layout : layouts)
    for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16}) {
      RunSpec spec = checked_run(layout, precision);
      spec.train.steps = 3;
      EXPECT_EQ(trained(spec, 1), trained(spec, 0))
          << fmt::format("dp={} pp={} cp={} tp={} zero={} shard={} in {}", layout.dp, layout.pp, layout.cp, layout.tp,
                         layout.zero, layout.shard, name_of(precision));
    }
}

TEST(StateCheck, RaisesNoAlarmInAnyFamily) {
  for (const NamedSpec& model : cut_specs())
    for (const LayoutSpec& layout :
         {LayoutSpec{.dp = 2, .tp = model.spec.heads == 8 ? 4 : 3, .sp = Switch::on},
          LayoutSpec{.dp = 3, .pp = 2, .micro = 2}, LayoutSpec{.dp = 3, .zero = 2, .grad_sync = GradSync::micro}}) {
      RunSpec spec = checked_run(layout, {}, model.spec);
      spec.train.steps = 3;
      EXPECT_EQ(trained(spec, 1), trained(spec, 0)) << model.name;
    }
}

// Optimizer state of any format.
TEST(StateCheck, RaisesNoAlarmWithNarrowState) {
  for (const LayoutSpec& layout : {LayoutSpec{.dp = 3}, LayoutSpec{.dp = 3, .zero = 1}}) {
    RunSpec spec = checked_run(layout, Precision::bf16);
    spec.precision.moments = spec.precision.master = spec.precision.gradients = StateType::bf16;
    EXPECT_EQ(trained(spec, 1), trained(spec, 0));
    spec = checked_run(layout);
    spec.optimizer.kind = OptimizerKind::sgd;
    spec.optimizer.momentum = 0.9;
    EXPECT_EQ(trained(spec, 1), trained(spec, 0));
  }
}

// What a check that is off costs: nothing is allocated, and nothing is hashed.
TEST(StateCheck, CostsNothingWhereItIsOff) {
  RunSpec spec = checked_run({.dp = 1});
  spec.run.check_state = 0;
  const TrainingRun off(spec, Device::cpu, {});
  EXPECT_FALSE(off.checks_state());
  spec.run.check_state = 1;
  const TrainingRun on(spec, Device::cpu, {}), counted(spec, Device::meta, {});
  EXPECT_TRUE(on.checks_state());
  EXPECT_GT(on.ledger().peak(Tag::workspace), off.ledger().peak(Tag::workspace));
  EXPECT_EQ(on.ledger().peak(Tag::workspace), counted.ledger().peak(Tag::workspace)) << "meta says otherwise";
}

ToldState told(const std::string& host, std::initializer_list<ToldState::Entry> entries) { return {host, entries}; }

// Of several ranks, and of entries with other holders, each is judged by its own majority.
TEST(StateCheck, BlamesWhoeverDiffersFromAMajority) {
  const ToldState good = told("a", {{1, {5, 5}, "block 0: m"}, {2, {6, 6}, "block 1: m"}}),
                  bad = told("b", {{1, {5, 4}, "block 0: m"}, {2, {6, 7}, "block 1: m"}}),
                  worse = told("c", {{1, {5, 5}, "block 0: m"}, {2, {9, 6}, "block 1: m"}});
  const auto explain = [](std::vector<ToldState> all) { return explain_difference(all, 120); };
  EXPECT_EQ(explain({good, good, bad}).text,
            "rank 2 (host b): its state differs from 2 replicas' at step 120: tensor group block 0: m and 1 more");
  EXPECT_EQ(explain({good, bad, good, good, worse}).blamed, (std::vector<int>{1, 4}));
  EXPECT_EQ(explain({good, bad}).blamed, std::vector<int>{});
  EXPECT_EQ(explain({good, good, bad, bad}).blamed, std::vector<int>{});
  EXPECT_EQ(explain({bad, good, told("d", {{3, {1, 1}, "block 9: m"}}), good}).blamed, std::vector<int>{0});
}

}  // namespace
}  // namespace lockstep::tests
