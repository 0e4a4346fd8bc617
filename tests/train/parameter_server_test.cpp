// Parameter servers: who holds the weights and the optimizer changes no bit of what is learned.
#include <gtest/gtest.h>

#include <mutex>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/learning_ranks.h"
#include "support/program.h"
#include "support/recorded_step.h"
#include "support/state_bytes.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;

LayoutSpec without_servers(LayoutSpec layout) {
  layout.dp_kind = DpKind::ddp;
  layout.servers = 0;
  return layout;
}

class ParameterServer : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(ParameterServer, LearnsTheBitsOfDdp) {
  const Switch on = Switch::on;
  for (const LayoutSpec& layout :
       {LayoutSpec{.dp = 1, .micro = 2, .dp_kind = DpKind::server, .servers = 1},
        LayoutSpec{.dp = 2, .micro = 1, .dp_kind = DpKind::server, .servers = 3},
        LayoutSpec{.dp = 3, .micro = 3, .dp_kind = DpKind::server, .servers = 1, .uneven = on},
        LayoutSpec{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 2, .overlap = Switch::off},
        LayoutSpec{.dp = 5, .micro = 2, .dp_kind = DpKind::server, .servers = 5, .uneven = on},
        LayoutSpec{.dp = 7, .micro = 1, .dp_kind = DpKind::server, .servers = 2, .uneven = on},
        LayoutSpec{.dp = 8, .micro = 3, .dp_kind = DpKind::server, .servers = 3}})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const Learned ddp = learn(GetParam().spec, without_servers(layout), precision);
      EXPECT_GT(ddp.norms[0], 0.1) << "clipping is to be active";
      expect_equal(learn(GetParam().spec, layout, precision), ddp, to_text(layout));
    }
}

// Servers of every stage and tensor-parallel rank; a tied weight whose two ends are on different stages.
TEST_P(ParameterServer, LearnsTheBitsOfDdpBesideEveryOtherAxis) {
  for (const LayoutSpec& layout :
       {LayoutSpec{.dp = 3, .tp = 2, .micro = 2, .dp_kind = DpKind::server, .servers = 2},
        LayoutSpec{.dp = 2, .tp = 2, .sp = Switch::on, .micro = 2, .dp_kind = DpKind::server, .servers = 6},
        LayoutSpec{.dp = 3, .pp = 2, .micro = 4, .dp_kind = DpKind::server, .servers = 2},
        LayoutSpec{.dp = 2, .pp = 3, .micro = 3, .dp_kind = DpKind::server, .servers = 6, .overlap = Switch::off},
        LayoutSpec{.dp = 2, .cp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 3},
        LayoutSpec{.dp = 3, .pp = 2, .tp = 2, .micro = 2, .dp_kind = DpKind::server, .servers = 8}}) {
    if (!heads_divide(GetParam().spec.heads, GetParam().spec.kv_heads, layout.tp)) continue;
    Replica::Options o = learning_options(GetParam().spec, layout, Precision::fp32);
    if (layout.cp > 1) o.T = 12;
    Replica::Options plain = o;
    plain.layout = without_servers(layout);
    expect_equal(learn(o), learn(plain), to_text(layout));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ParameterServer, ::testing::ValuesIn(cut_specs()),
                         [](const auto& info) { return info.param.name; });

// Workers and servers that are apart: every tensor goes through memory of the host.
TEST(ParameterServerOnTheHost, LearnsTheBitsOfDdp) {
  for (const LayoutSpec& layout : {LayoutSpec{.dp = 1, .micro = 2, .dp_kind = DpKind::server, .servers = 1},
                                   LayoutSpec{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 2},
                                   LayoutSpec{.dp = 4, .micro = 1, .dp_kind = DpKind::server, .servers = 3}})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const Replica::Options o = learning_options(tiny_specs()[0].spec, layout, precision);
      Replica::Options ddp = o;
      ddp.layout = without_servers(layout);
      expect_equal(learn(o, 3, {}, Device::cpu, true), learn(ddp, 3), to_text(layout));
    }
}

// A loss scale that is found, halved on overflow: servers decide, workers scale.
TEST(ParameterServerScaling, InFp16FollowsDdp) {
  Replica::Options o = learning_options(
      tiny_specs()[0].spec, {.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 2}, Precision::fp16);
  o.precision.loss_scale = LossScale{.kind = LossScale::Kind::dynamic};
  Replica::Options ddp = o;
  ddp.layout = without_servers(o.layout);
  expect_equal(learn(o, 6), learn(ddp, 6), "fp16");
}

// The derivation of docs/synchronization.md, element by element: gradients up, weights down.
TEST(ParameterServerMessages, AreTwicePsiForEachWorkerOverItsServers) {
  for (const std::int64_t workers : {1, 2, 3, 5, 8})
    for (const std::int64_t servers : {1, 2, 3, 5}) {
      const Replica::Options o{
          .spec = tiny_specs()[0].spec,
          .B = 24,
          .T = 9,
          .layout = {.dp = workers, .micro = 1, .dp_kind = DpKind::server, .servers = servers, .uneven = Switch::on},
          .seed = 5};
      const std::vector<Recorded> real = on_threads(o);
      std::int64_t shard = 0;  // of all units together, padding included
      for (const std::int64_t owned : real[0].owned) shard += Shard{.index = 0, .count = servers}.elements(owned);
      const std::int64_t psi = shard * servers;
      EXPECT_GE(psi, real[0].stored);
      EXPECT_LT(psi, real[0].stored + static_cast<std::int64_t>(real[0].owned.size()) * servers * 256);
      for (std::int64_t r = 0; r < workers + servers; ++r) {
        const Recorded& one = real[static_cast<std::size_t>(r)];
        const auto of = [&](CommOp op, int which) {
          return one.sent.at({op, DType::f32})[static_cast<std::size_t>(which)];
        };
        constexpr int kSent = 1, kReceived = 2;
        const std::string who = fmt::format("rank {} of {} workers, {} servers", r, workers, servers);
        EXPECT_EQ(of(CommOp::gather, kSent), r < workers ? psi : 0) << who;
        EXPECT_EQ(of(CommOp::gather, kReceived), r < workers ? 0 : workers * psi / servers) << who;
        EXPECT_EQ(of(CommOp::broadcast, kSent), r < workers ? 0 : workers * psi / servers) << who;
        EXPECT_EQ(of(CommOp::broadcast, kReceived), r < workers ? psi : 0) << who;
        EXPECT_EQ(on_meta(o, static_cast<int>(r)).sent, one.sent) << who;
      }
    }
}

TEST(ParameterServerMessages, BesideOtherAxesAreWhatMetaSays) {
  for (const LayoutSpec& layout :
       {LayoutSpec{.dp = 2, .pp = 2, .tp = 2, .micro = 2, .dp_kind = DpKind::server, .servers = 4},
        LayoutSpec{.dp = 2, .pp = 2, .cp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 6}}) {
    const Replica::Options o{.spec = cut_specs().back().spec, .B = 8, .T = 12, .layout = layout, .seed = 5};
    const std::vector<Recorded> real = on_threads(o);
    for (int r = 0; r < layout.ranks(); ++r)
      EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent) << to_text(layout) << ", rank " << r;
  }
}

constexpr std::int64_t kServedSave = 3, kServedSteps = 5;

RunSpec served_run(const LayoutSpec& layout) {
  RunSpec spec;
  for (const NamedSpec& named : tiny_specs())
    if (named.spec.dropout > 0) spec.model = named.spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = kServedSteps, .global_batch = 30, .save_every = kServedSave, .keep = 100, .seed = 4};
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.clip = 0.05;
  spec.layout = layout;
  spec.run.threads = 1;
  return spec;
}

void train_served(const RunSpec& spec, const fs::path& folder, const fs::path& from = {}) {
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group.get()});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    Watcher silent;
    train(run, progress, silent);
  });
}

struct ServedEvaluations final : Watcher {
  std::vector<std::pair<double, double>> found;  // loss and accuracy
  void evaluated(const EvalRecord& record) override { found.emplace_back(record.loss, record.accuracy.value_or(-1)); }
};

TEST(ParameterServerEvaluation, IsDdps) {
  std::vector<std::vector<std::pair<double, double>>> both;
  const LayoutSpec served{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 2};
  for (const LayoutSpec& layout : {served, without_servers(served)}) {
    RunSpec spec = served_run(layout);
    spec.train.save_every = 0;
    spec.train.save_last = false;
    spec.train.eval_every = 2;
    spec.train.eval_batches = 2;
    std::vector<std::pair<double, double>>& found = both.emplace_back();
    run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> group) {
      TrainingRun run(spec, Device::cpu, "", {.ranks = group.get()});
      run.init_weights();
      Progress progress = beginning(run);
      ServedEvaluations watcher;
      train(run, progress, watcher);
      if (group->rank() == 0) found = watcher.found;
    });
  }
  ASSERT_EQ(both[0].size(), 3u);
  EXPECT_EQ(both[0], both[1]);
}

// What a checkpoint says, whoever saved it.
std::vector<char> served_state(const fs::path& folder, std::int64_t step) {
  const TemporaryFolder unused;
  TrainingRun run(served_run({}), Device::cpu, unused.path());
  resume(run, open_checkpoint(folder / step_folder_name(step)), [](const std::string&) {});
  return state_bytes(run);
}

TEST(ParameterServerCheckpoint, IsDdpsAndAnyOtherLayoutContinuesFromIt) {
  const LayoutSpec served{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 2};
  const TemporaryFolder by_servers, by_ddp, back;
  train_served(served_run(served), by_servers.path());
  train_served(served_run(without_servers(served)), by_ddp.path());
  for (const std::int64_t step : {kServedSave, kServedSteps})
    EXPECT_TRUE(served_state(by_servers.path(), step) == served_state(by_ddp.path(), step)) << step;
  EXPECT_EQ(open_checkpoint(by_servers.path() / step_folder_name(kServedSave)).manifest().files.size(), 2u)
      << "workers have nothing to save";
  // And back, to the bit; from there to other layouts, which continue from the same state.
  train_served(served_run(served), back.path(), by_ddp.path() / step_folder_name(kServedSave));
  EXPECT_TRUE(served_state(back.path(), kServedSteps) == served_state(by_ddp.path(), kServedSteps));
  for (const LayoutSpec& other : {LayoutSpec{.dp = 3, .micro = 2, .zero = 1}, LayoutSpec{.dp = 2, .pp = 2, .micro = 3},
                                  LayoutSpec{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 5}}) {
    const TemporaryFolder next;
    train_served(served_run(other), next.path(), by_servers.path() / step_folder_name(kServedSave));
    if (other.dp == 3) {
      EXPECT_TRUE(served_state(next.path(), kServedSteps) == served_state(by_ddp.path(), kServedSteps))
          << to_text(other);
    }
  }
}

TEST(ParameterServerCheckpoint, EveryRanksLedgerIsWhatMetaSays) {
  for (const LayoutSpec& layout :
       {LayoutSpec{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 1},
        LayoutSpec{.dp = 2, .micro = 1, .dp_kind = DpKind::server, .servers = 3, .overlap = Switch::off},
        LayoutSpec{.dp = 3, .pp = 2, .micro = 2, .dp_kind = DpKind::server, .servers = 4}}) {
    const RunSpec spec = served_run(layout);
    const TemporaryFolder folder;
    std::mutex mutex;
    std::int64_t moments = 0;
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
      const bool serves = layout.serves(group->rank());
      EXPECT_EQ(real.ledger().peak(Tag::activation) > 0, !serves) << "rank " << group->rank();
      EXPECT_EQ(real.ledger().peak(Tag::optimizer) > 0, serves) << "rank " << group->rank();
      const std::lock_guard lock(mutex);
      moments += real.ledger().peak(Tag::optimizer);
    });
    const Model whole(spec.model, 1, 1, DType::f32);
    std::int64_t expected = 0;  // two moments, shard by shard; of a tied weight's two stages one
    for (int u = 0; u < whole.units(); ++u)
      expected += Shard{.index = 0, .count = layout.shards()}.padded(whole.unit(u).layout().owned()) * 2 * 4;
    EXPECT_EQ(moments, expected) << to_text(layout);
  }
}

}  // namespace
}  // namespace lockstep::tests
