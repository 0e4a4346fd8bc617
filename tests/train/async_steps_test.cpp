// Asynchronous parameter servers against a slow, plain, serial model of them: one thread, no messages, loops over
// doubles, given the order in which gradients were applied. Of the program it uses the gradient of one rank alone,
// which other tests hold to references.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "support/async_ranks.h"
#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kAsyncSteps = 20;

// Threads of two cores come in an order of their own; a little sleep makes it another one each time.
void jitter(int worker, std::int64_t ticket) {
  std::mt19937 random(static_cast<unsigned>(worker * 1000 + ticket));
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
}

std::int64_t most_stale(const std::vector<Arrival>& arrivals) {
  return arrivals.empty() ? 0 : staleness_of(arrivals).most;
}

// Every ticket once, updates in order, nothing from the future.
void expect_is_an_order(const std::vector<Arrival>& arrivals, std::int64_t updates, std::int64_t bound,
                        const std::string& what) {
  ASSERT_EQ(std::ssize(arrivals), updates) << what;
  std::set<std::int64_t> tickets;
  for (std::int64_t i = 0; i < updates; ++i) {
    const Arrival& one = arrivals[static_cast<std::size_t>(i)];
    EXPECT_EQ(one.update, i) << what;
    EXPECT_LE(one.version, i) << what;
    if (bound >= 0) {
      EXPECT_LE(one.staleness(), bound) << what << ", update " << i;
    }
    tickets.insert(one.ticket);
  }
  EXPECT_EQ(std::ssize(tickets), updates) << what;
  EXPECT_EQ(*tickets.rbegin(), updates - 1) << what << ": no sample is lost";
}

void expect_follows_serial_model(const Replica::Options& o, const AsyncTraining& training, const std::string& what) {
  const AsyncLearned many = train_async(o, training);
  expect_is_an_order(many.arrivals, training.steps * o.layout.dp, o.sync.staleness, what);
  if (!training.record.empty()) {
    EXPECT_TRUE(many.arrivals == training.record) << what << ": the record is repeated";
  }
  expect_close(many, simulate_async(o, training, many.arrivals), 1e-11, what);
}

std::string async_text(const Replica::Options& o) {
  return fmt::format("{}, staleness {}", to_text(o.layout), o.sync.staleness);
}

class AsyncStepsOfFamilies : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(AsyncStepsOfFamilies, AreTheSerialModels) {
  for (const auto& [workers, servers, micro, bound] : {std::tuple{1, 2, 2, kNoStalenessBound},
                                                       {2, 1, 1, kNoStalenessBound},
                                                       {3, 2, 2, std::int64_t{2}},
                                                       {5, 3, 1, std::int64_t{1}}}) {
    const Replica::Options o = async_options(GetParam().spec, async_layout(workers, servers, micro), bound, 2);
    expect_follows_serial_model(o, {.before_ticket = jitter}, async_text(o));
    expect_follows_serial_model(o,
                                {.record = random_record(workers, kAsyncSteps, bound, static_cast<unsigned>(workers))},
                                async_text(o) + ", of a record");
  }
}

INSTANTIATE_TEST_SUITE_P(All, AsyncStepsOfFamilies, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(AsyncSteps, AreTheSerialModelsWithUpToEightWorkers) {
  for (const auto& [workers, servers, micro] : {std::tuple{4, 5, 3}, {6, 2, 1}, {7, 1, 2}, {8, 3, 1}}) {
    const Replica::Options o =
        async_options(tiny_specs()[0].spec, async_layout(workers, servers, micro), kNoStalenessBound, micro);
    const std::vector<Arrival> record = random_record(workers, kAsyncSteps, kNoStalenessBound, 7);
    EXPECT_GT(most_stale(record), workers) << "some are passed over";
    expect_follows_serial_model(o, {.record = record}, async_text(o));
  }
}

// Tensor, sequence and pipeline parallel inside of a worker; a tied weight on two stages.
TEST(AsyncSteps, AreTheSerialModelsBesideTensorAndPipelineParallel) {
  for (const NamedSpec& model : cut_specs())
    for (LayoutSpec layout : {LayoutSpec{.dp = 3, .tp = 2, .micro = 1}, LayoutSpec{.dp = 3, .pp = 2, .micro = 2},
                              LayoutSpec{.dp = 2, .pp = 2, .tp = 2, .micro = 2}}) {
      if (!heads_divide(model.spec.heads, model.spec.kv_heads, layout.tp)) continue;
      layout.sp = layout.dp == 3 && layout.tp > 1 ? Switch::on : Switch::off;
      layout.dp_kind = DpKind::server;
      layout.servers = layout.line() * (layout.dp == 3 ? 2 : 1);
      const Replica::Options o = async_options(model.spec, layout, kNoStalenessBound, 2);
      expect_follows_serial_model(o, {.steps = 8, .record = random_record(static_cast<int>(layout.dp), 8, -1, 3)},
                                  model.name + " " + async_text(o));
    }
}

// Ranks that meet on the way, and learning rates that change from step to step.
TEST(AsyncSteps, AreTheSerialModelsWhereRanksMeetAndRatesChange) {
  const Replica::Options o = async_options(tiny_specs()[0].spec, async_layout(3, 2), kNoStalenessBound);
  const auto meets = [](std::int64_t steps) { return steps % 4 == 0; };
  const auto rate = [](std::int64_t step) { return kAsyncRate * static_cast<double>(step % 5 + 1); };
  const AsyncTraining training{
      .record = random_record(3, kAsyncSteps, kNoStalenessBound, 11, meets), .meets = meets, .rate = rate};
  expect_follows_serial_model(o, training, "meetings");
  for (const Arrival& one : training.record)
    EXPECT_GE(one.version, one.update / 12 * 12) << "nothing is under way where ranks meet";
}

TEST(AsyncSteps, ThatAreReplayedHaveTheSameBits) {
  for (const auto& [workers, servers] : {std::pair{3, 2}, {5, 1}}) {
    Replica::Options o = async_options(tiny_specs()[0].spec, async_layout(workers, servers), kNoStalenessBound);
    o.precision = Precision::fp32;
    const AsyncLearned once = train_async(o, {.before_ticket = jitter});
    EXPECT_GT(most_stale(once.arrivals), 0);
    const AsyncLearned again = train_async(o, {.record = once.arrivals});
    expect_same_bits(again, once, async_text(o));
    // Another order teaches something else: the bits are the order's, not the samples'.
    std::vector<Arrival> other = random_record(workers, kAsyncSteps, kNoStalenessBound, 99);
    EXPECT_FALSE(train_async(o, {.record = other}).weights == once.weights);
  }
}

// The same masks as the samples have in a synchronous run: with a learning rate that changes nothing, its losses.
TEST(AsyncSteps, DropWhatASynchronousRunDrops) {
  for (const NamedSpec& model : tiny_specs()) {
    if (model.spec.dropout == 0) continue;
    Replica::Options o = async_options(model.spec, async_layout(3, 1), kNoStalenessBound);
    o.spec = model.spec;
    constexpr std::int64_t kSteps = 4;
    const AsyncTraining still{.steps = kSteps, .rate = [](std::int64_t) { return 0.0; }};
    AsyncTraining in_turn = still;
    in_turn.record = random_record(3, kSteps, 0, 1);  // each step's tickets in that step
    for (const Arrival& one : in_turn.record) ASSERT_EQ(one.ticket, one.update);
    const AsyncLearned apart = train_async(o, in_turn);
    Replica::Options one = o;
    one.layout = {};
    one.sync = {};
    const std::vector<double> whole = synchronous_losses(one, kSteps);
    ASSERT_EQ(apart.losses.size(), whole.size());
    for (std::size_t step = 0; step < whole.size(); ++step)
      EXPECT_NEAR(apart.losses[step], whole[step], 1e-12 * whole[step]) << step;
  }
}

// The bits of the synchronous server, which are ddp's.
TEST(AsyncSteps, WithoutStalenessAreTheSynchronousServers) {
  Replica::Options o = learning_options(tiny_specs()[0].spec, async_layout(3, 2, 2), Precision::fp32);
  const Learned synchronous = learn(o);
  o.sync = async_sync(0);
  expect_equal(learn(o), synchronous, "staleness 0");
  o.layout.dp_kind = DpKind::ddp;
  o.layout.servers = 0;
  o.sync = {};
  expect_equal(synchronous, learn(o), "ddp");
}

// A worker that is slowed is the stalest, and the bound holds all the same.
TEST(AsyncSteps, KeepTheBoundWithASlowWorker) {
  for (const std::int64_t bound : {kNoStalenessBound, std::int64_t{1}, std::int64_t{3}}) {
    const Replica::Options o = async_options(tiny_specs()[0].spec, async_layout(4, 1), bound);
    const AsyncLearned learned =
        train_async(o, {.before_ticket = [](int worker, std::int64_t) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(worker == 3 ? 12 : 1));
                    }});
    expect_is_an_order(learned.arrivals, kAsyncSteps * 4, bound, async_text(o));
    if (bound < 0) {
      EXPECT_GT(most_stale(learned.arrivals), 4) << "without a bound it would not hold";
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
