// Asynchronous runs as the loop trains them: messages, memory, checkpoints, stops and bad values.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "support/async_ranks.h"
#include "support/devices.h"
#include "support/program.h"
#include "support/state_bytes.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;

// Elements of fp32 and calls of a rank in some steps whose workers come in turn, set-up left out.
struct AsyncSent {
  std::int64_t sent = 0, received = 0, numbers = 0;
  bool operator==(const AsyncSent&) const = default;
};

template <class Ranks>
AsyncSent async_sends(const Replica::Options& o, const AsyncTraining& training, Ranks ranks, Memory& memory,
                      Stream& stream, std::int64_t& shard) {
  CommLog log;
  Recorder recorded(std::move(ranks), log);
  Replica replica(o, {recorded, recorded}, memory, stream);
  replica.init_weights();
  const auto counted = [&] {
    AsyncSent all;
    for (const auto& [key, total] : log.totals())
      if (std::get<DType>(key) == DType::f32)
        all.sent += total.sent, all.received += total.received;
      else
        all.numbers += total.sent;
    return all;
  };
  const AsyncSent before = counted();
  replica.async().use({.read =
                           [](std::int64_t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
                             std::ranges::fill(tokens, 1);
                             std::ranges::fill(targets, 2);
                           },
                       .meets = [&](std::int64_t steps) { return steps == training.steps; },
                       .record = training.record});
  for (std::int64_t step = 0; step < training.steps; ++step) {
    replica.begin_step(step * o.B);
    replica.finish_step();
  }
  shard = 0;
  for (int u = 0; u < replica.model().units(); ++u)
    shard += Shard{.index = 0, .count = o.layout.shards()}.elements(replica.model().unit(u).layout().owned());
  const AsyncSent after = counted();
  return {after.sent - before.sent, after.received - before.received, after.numbers - before.numbers};
}

// Workers in turn: each pushes Ψ and receives Ψ in a step, a server W times its shard of both.
TEST(AsyncMessages, AreThoseOfTheDerivationAndOfMeta) {
  for (const std::int64_t workers : {1, 2, 3, 5})
    for (const std::int64_t servers : {1, 2, 3}) {
      constexpr std::int64_t kSteps = 3;
      Replica::Options o = async_options(tiny_specs()[0].spec, async_layout(workers, servers), kNoStalenessBound);
      o.precision = {};
      AsyncTraining training{.steps = kSteps};
      for (std::int64_t u = 0; u < kSteps * workers; ++u)
        training.record.push_back(
            {.update = u, .worker = u % workers, .ticket = u, .version = std::max<std::int64_t>(0, u - workers + 1)});
      run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
        const int rank = group->rank(), size = group->size();
        CpuDevice cpu;
        MetaDevice meta;
        std::int64_t shard = 0, meta_shard = 0;
        const AsyncSent real = async_sends(o, training, std::move(group), cpu.memory(), cpu.stream(), shard);
        EXPECT_EQ(async_sends(o, training, std::make_unique<meta::Communicator>(rank, size), meta.memory(),
                              meta.stream(), meta_shard),
                  real)
            << "rank " << rank << " of " << to_text(o.layout);
        const std::int64_t each = kSteps * shard * (o.layout.serves(rank) ? workers : servers);
        EXPECT_EQ(real.sent, each) << "rank " << rank << " of " << to_text(o.layout);
        EXPECT_EQ(real.received, each);
      });
    }
}

RunSpec async_run(const LayoutSpec& layout) {
  RunSpec spec;
  for (const NamedSpec& named : tiny_specs())
    if (named.spec.dropout > 0) spec.model = named.spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 6, .global_batch = 12, .save_every = 3, .keep = 100, .seed = 4};
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.clip = 0.05;
  spec.layout = layout;
  if (layout.dp_kind == DpKind::server) spec.sync = async_sync(kNoStalenessBound);
  spec.run.threads = 1;
  return spec;
}

struct AsyncWatcher final : Watcher {
  std::vector<Arrival> arrivals;
  std::vector<double> losses, evaluations;
  std::string reason;
  std::int64_t stop_after = 1000, last = 0;
  void stepped(const StepRecord& record) override {
    arrivals.insert(arrivals.end(), record.arrivals.begin(), record.arrivals.end());
    losses.push_back(record.loss);
    last = record.step;
  }
  void evaluated(const EvalRecord& record) override { evaluations.push_back(record.loss); }
  bool wants_stop() override { return last >= stop_after; }
  void ended_by(const std::string& why) override { reason = why; }
};

struct AsyncRan {
  AsyncWatcher watcher;  // of rank 0
  Ending ending = Ending::finished;
  Progress progress;
};

AsyncRan run_async(const RunSpec& spec, const fs::path& folder, const fs::path& from = {},
                   std::int64_t stop_after = 1000) {
  AsyncRan ran;
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group.get()});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    AsyncWatcher watcher;
    if (group->rank() == 0) watcher.stop_after = stop_after;
    const Ending ending = train(run, progress, watcher);
    if (group->rank() == 0) ran = {watcher, ending, progress};
  });
  return ran;
}

std::vector<char> async_state(const fs::path& folder, std::int64_t step) {
  const TemporaryFolder unused;
  TrainingRun run(async_run({}), Device::cpu, unused.path());
  resume(run, open_checkpoint(folder / step_folder_name(step)), [](const std::string&) {});
  return state_bytes(run);
}

fs::path written_record(const fs::path& folder, const std::vector<Arrival>& arrivals, std::int64_t dp) {
  const fs::path file = folder / kArrivalsName;
  std::ofstream out(file);
  for (const Arrival& one : arrivals) out << to_json_line(one.update / dp + 1, one);
  return file;
}

TEST(AsyncCheckpoint, ContinuesToTheBitsOfAnUnbrokenRun) {
  const LayoutSpec layout = async_layout(3, 2, 2);
  const TemporaryFolder whole, first, second, record;
  RunSpec spec = async_run(layout);
  const AsyncRan once = run_async(spec, whole.path());
  ASSERT_EQ(once.watcher.arrivals.size(), 18u);
  EXPECT_EQ(once.progress.updates, 18);
  EXPECT_EQ(once.progress.samples, 72);
  for (const Arrival& one : once.watcher.arrivals)
    EXPECT_GE(one.version, one.update / 9 * 9) << "nothing is under way where a run saves";
  spec.sync.replay = written_record(record.path(), once.watcher.arrivals, 3).string();
  EXPECT_EQ(read_arrivals(spec.sync.replay), once.watcher.arrivals);
  const AsyncRan again = run_async(spec, first.path());
  EXPECT_EQ(again.watcher.losses, once.watcher.losses);
  for (const std::int64_t step : {3, 6})
    EXPECT_TRUE(async_state(first.path(), step) == async_state(whole.path(), step)) << step;
  const AsyncRan rest = run_async(spec, second.path(), whole.path() / step_folder_name(3));
  EXPECT_TRUE(async_state(second.path(), 6) == async_state(whole.path(), 6));
  EXPECT_TRUE(std::equal(rest.watcher.arrivals.begin(), rest.watcher.arrivals.end(), once.watcher.arrivals.begin() + 9,
                         once.watcher.arrivals.end()));
  // Other layouts, synchronous and not, continue from it.
  for (const LayoutSpec& other : {LayoutSpec{.dp = 3, .micro = 2, .zero = 1}, async_layout(2, 3), LayoutSpec{}}) {
    const TemporaryFolder next;
    const AsyncRan ran = run_async(async_run(other), next.path(), whole.path() / step_folder_name(3));
    EXPECT_EQ(ran.ending, Ending::finished) << to_text(other);
    EXPECT_EQ(ran.watcher.losses.size(), 3u);
  }
  // A record that has something under way where this run would save.
  spec.train.save_every = 2;
  const bool crosses = std::ranges::any_of(once.watcher.arrivals, [](const Arrival& one) {
    return (one.version < 6 && one.update >= 6) || (one.version < 12 && one.update >= 12);
  });
  if (crosses) {
    const TemporaryFolder refused;
    EXPECT_ANY_THROW(run_async(spec, refused.path()));
  }
}

// In a run that neither saves nor evaluates, ranks never meet before they are asked to stop.
TEST(AsyncCheckpoint, OfARunThatIsStoppedHasAllThatWasDealt) {
  RunSpec spec = async_run(async_layout(3, 1));
  spec.train.steps = 400;
  spec.train.save_every = 0;
  const TemporaryFolder folder;
  const AsyncRan ran = run_async(spec, folder.path(), {}, 5);
  EXPECT_EQ(ran.ending, Ending::stopped);
  EXPECT_GE(ran.progress.step, 5);
  EXPECT_LT(ran.progress.step, 100);
  EXPECT_EQ(ran.progress.updates, ran.progress.step * 3);
  std::set<std::int64_t> tickets;
  for (const Arrival& one : ran.watcher.arrivals) tickets.insert(one.ticket);
  EXPECT_EQ(std::ssize(tickets), ran.progress.step * 3);
  EXPECT_EQ(*tickets.rbegin(), ran.progress.step * 3 - 1) << "nothing was dealt that is not in the checkpoint";
  spec.train.steps = ran.progress.step + 2;
  const TemporaryFolder next;
  const AsyncRan rest = run_async(spec, next.path(), folder.path() / step_folder_name(ran.progress.step));
  EXPECT_EQ(rest.ending, Ending::finished);
  EXPECT_EQ(rest.watcher.losses.size(), 2u);
}

TEST(AsyncRun, EvaluatesTheServersWeights) {
  RunSpec spec = async_run(async_layout(3, 2));
  spec.train.eval_every = 2;
  spec.train.eval_batches = 2;
  spec.data.eval_share = 0.1;
  const TemporaryFolder folder, other;
  const AsyncRan ran = run_async(spec, folder.path());
  ASSERT_EQ(ran.watcher.evaluations.size(), 3u);
  // A run that resumes from the end, and is evaluated there by one rank.
  RunSpec alone = spec;
  alone.layout = {};
  alone.sync = {};
  TrainingRun run(alone, Device::cpu, other.path());
  resume(run, open_checkpoint(folder.path() / step_folder_name(6)), [](const std::string&) {});
  EXPECT_NEAR(run.evaluate().loss, ran.watcher.evaluations.back(), 1e-6);
}

TEST(AsyncRun, EndsAtABadValueAndSaysWhoseItWas) {
  RunSpec spec = async_run(async_layout(3, 1));
  spec.optimizer.learning_rate = 1e30;
  spec.optimizer.clip = 0;
  spec.train.steps = 50;
  spec.train.save_every = 0;
  const TemporaryFolder folder;
  const AsyncRan ran = run_async(spec, folder.path());
  EXPECT_EQ(ran.ending, Ending::bad_values);
  EXPECT_NE(ran.watcher.reason.find("not finite, nothing was updated; the first was the gradient of worker "),
            std::string::npos)
      << ran.watcher.reason;
  EXPECT_LT(ran.progress.step, 10) << "ranks meet as soon as they can";
}

TEST(AsyncRun, EveryRanksLedgerIsWhatMetaSays) {
  for (LayoutSpec layout : {async_layout(3, 1, 2), async_layout(2, 3), LayoutSpec{.dp = 2, .pp = 2, .micro = 2}}) {
    if (layout.pp == 2) layout.dp_kind = DpKind::server, layout.servers = 4;
    RunSpec spec = async_run(layout);
    spec.train.steps = 1;
    const TemporaryFolder folder;
    run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> group) {
      const auto work = [&](TrainingRun& run) {
        run.init_weights();
        run.step(0, 1e-3);
        run.save({});
        run.wait_for_save();
      };
      TrainingRun real(spec, Device::cpu, folder.path(), {.ranks = group.get()});
      work(real);
      meta::Communicator others(group->rank(), static_cast<int>(layout.ranks()));
      TrainingRun counted(spec, Device::meta, "", {.ranks = &others});
      work(counted);
      EXPECT_EQ(real.ledger().rows(), counted.ledger().rows()) << "rank " << group->rank() << " of " << to_text(layout);
      EXPECT_EQ(real.ledger().peak(), counted.ledger().peak());
    });
  }
}

// A step has one result, which the next would take the place of: a device that runs ahead changes nothing of that.
TEST(AsyncRun, HasOneStepUnderWay) {
  const RunSpec spec = async_run(async_layout(2, 1));
  meta::Communicator others(0, 3);
  const TrainingRun run(spec, Device::meta, "", {.ranks = &others, .steps_at_once = 2});
  EXPECT_EQ(run.steps_at_once(), 1);
}

}  // namespace
}  // namespace lockstep::tests
