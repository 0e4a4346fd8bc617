// Samples without padding: they learn what their documents learn one by one, in every layout, and what is counted is
// what is done.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "checkpoint/checkpoint_folder.h"
#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "data/token_file_writer.h"
#include "support/devices.h"
#include "support/learning_ranks.h"
#include "support/mesh_matrix.h"
#include "support/one_by_one.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"
#include "train/layout_trial.h"

namespace lockstep::tests {
namespace {

// Samples of one document each, of these numbers of tokens in turn.
std::shared_ptr<const DocumentPairs> samples_of(std::int64_t T, const std::vector<std::int64_t>& tokens) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(T) + 1);
  for (const std::int64_t n : tokens) ++lengths[static_cast<std::size_t>(n)];
  return std::make_shared<const DocumentPairs>(std::ssize(tokens), T, lengths);
}

void leave_padding_out(Replica::Options& options) {
  options.spec.dropout = options.spec.attention_dropout = 0;
  options.how.documents = samples_of(options.T, {options.T, (options.T + 1) / 2});
  options.how.varlen = true;
}

Replica::Options varlen_options(ModelSpec spec, Precision precision, std::int64_t B, std::int64_t T,
                                const LayoutSpec& layout = {}) {
  Replica::Options options{
      .spec = std::move(spec), .B = B, .T = T, .layout = layout, .precision = precision, .seed = 5};
  leave_padding_out(options);
  return options;
}

// The same batch with padding that is computed on: documents of one token.
TokenBatch padded(TokenBatch batch) {
  for (std::int32_t& token : batch.tokens)
    if (token == kPadding) token = kBeginsDocument;
  return batch;
}
Replica::Options with_padding(Replica::Options options) {
  options.how.varlen = false;
  return options;
}

class VarlenOf : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(VarlenOf, LearnOneByOneWhatTheyLearnTogether) {
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}})
    for (const unsigned seed : {1U, 2U}) {
      const Replica::Options options = varlen_options(GetParam().spec, precision, 4, 29, {.micro = 2});
      const TokenBatch batch = random_batch(options, seed);
      ASSERT_GT(std::ranges::count(batch.tokens, kPadding), 10);
      ASSERT_GT(documents_of(batch, options.T).size(), 5U);
      expect_same(run_batch(options, batch), run_one_by_one(options, batch), tolerance,
                  fmt::format("{}, seed {}", name_of(precision), seed));
    }
}

// Shorter and longer than attention's tiles, and a row longer than the model has positions.
TEST_P(VarlenOf, OfManyLengthsLearnWhatTheyLearnAlone) {
  ModelSpec spec = GetParam().spec;
  spec.max_positions = 150;
  spec.layers = 1;
  const Replica::Options options = varlen_options(spec, Precision::fp64, 3, 150);
  TokenBatch batch = random_batch(with_padding(options), 3);
  for (std::int32_t& token : batch.tokens) token &= ~kBeginsDocument;
  for (const std::size_t begin : {1, 2, 70, 75, 149, 155, 301}) {
    batch.tokens[begin] |= kBeginsDocument;
    batch.targets[begin - 1] = kNoTarget;
  }
  shorten(batch, options, 0, 148);
  shorten(batch, options, 1, 1);
  expect_same(run_batch(options, batch), run_one_by_one(options, batch), 1e-11, "");
}

INSTANTIATE_TEST_SUITE_P(All, VarlenOf, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

// Where a micro-batch is one sample, its sums have the order they have with padding after it, which adds zeros.
TEST(Varlen, OfOneSampleHasTheBitsItHasWithPadding) {
  for (const NamedSpec& model : tiny_specs()) {
    const Replica::Options options = varlen_options(model.spec, Precision::fp32, 4, 33, {.micro = 4});
    const TokenBatch batch = random_batch(options, 6);
    const Found without = run_batch(options, batch), with = run_batch(with_padding(options), padded(batch));
    EXPECT_EQ(without.loss, with.loss) << model.name;
    EXPECT_EQ(without.gradients, with.gradients) << model.name;
  }
}

// Full samples, one in a micro-batch, are rows of T tokens: nothing is another computation.
TEST(Varlen, ThatAreFullHaveTheBitsOfSamplesOfOneLength) {
  for (const NamedSpec& model : tiny_specs()) {
    const Replica::Options options = varlen_options(model.spec, Precision::fp32, 3, 33, {.micro = 3});
    const TokenBatch batch = random_batch(with_padding(options), 6);
    const Found without = run_batch(options, batch), with = run_batch(with_padding(options), batch);
    EXPECT_EQ(without.loss, with.loss) << model.name;
    EXPECT_EQ(without.logits, with.logits) << model.name;
    EXPECT_EQ(without.gradients, with.gradients) << model.name;
  }
}

// What was recomputed, or was elsewhere, has as many rows.
TEST(Varlen, ChangesNoBitWithWhatIsRecomputedOrOffloaded) {
  for (const NamedSpec& model : tiny_specs()) {
    Replica::Options options = varlen_options(model.spec, Precision::fp32, 4, 21, {.micro = 2});
    const TokenBatch batch = random_batch(options, 7);
    const Found plain = run_batch(options, batch);
    for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
      options.how.memory.recompute = recompute;
      EXPECT_EQ(run_batch(options, batch).gradients, plain.gradients) << model.name << ", " << name_of(recompute);
    }
    options.how.memory = {};
    for (const Offload where : {Offload::host, Offload::disk}) {
      options.how.memory.offload_activations = where;
      EXPECT_EQ(run_batch(options, batch).gradients, plain.gradients) << model.name << ", " << name_of(where);
    }
  }
}

TEST(Varlen, OfSamplesWithoutATargetHasNoLoss) {
  const Replica::Options options = varlen_options(tiny_specs()[0].spec, Precision::fp32, 2, 8, {.micro = 2});
  TokenBatch batch = random_batch(options, 1);
  std::ranges::fill(batch.targets, kNoTarget);
  const Found found = run_batch(options, batch);
  EXPECT_EQ(found.loss, 0);
  for (const auto& [name, values] : found.gradients) EXPECT_EQ(norm(values), 0) << name;
}

constexpr unsigned kSampleSeed = 23;

// Later gradients in fp32 are those of weights that Adam has moved by what was rounding.
constexpr LearnedTolerances kCloseAfterUpdates{1e-5, 1e-5, 1e-5, 1e-5, 1e-3};

void expect_varlen_learns_as_one_rank(const MeshCase& one, const MemorySpec& memory = {}, int steps = 2) {
  for (const auto& [precision, tolerances] :
       {std::pair{Precision::fp64, kCloseInDouble}, std::pair{Precision::fp32, kCloseAfterUpdates}}) {
    const auto learned = [&, precision = precision](const LayoutSpec& layout, const MemorySpec& how) {
      Replica::Options options = learning_options(one.model.spec, layout, precision);
      options.B = one.B;
      options.T = one.T;
      options.how.memory = how;
      leave_padding_out(options);
      return learn(options, steps);
    };
    expect_close(learned(one.layout, memory), learned({}, {}), tolerances, one.words());
  }
}

TEST(VarlenInLayouts, LearnsWhatOneRankLearns) {
  for (const MeshCase& one : mesh_sample(45, kSampleSeed)) expect_varlen_learns_as_one_rank(one);
}

TEST(VarlenInLayouts, LearnsWhatOneRankLearnsInEveryKindOfContext) {
  const NamedSpec model = cut_specs()[8];
  for (const std::int64_t cp : {2, 4, 8})
    for (std::int64_t heads = 1; heads <= cp; heads *= 2) {
      if (cp % heads != 0 || !heads_divide(model.spec.heads, model.spec.kv_heads, heads)) continue;
      for (const CpOrder order : {CpOrder::zigzag, CpOrder::plain}) {
        if (heads == cp && order == CpOrder::plain) continue;
        LayoutSpec layout{.cp = cp};
        layout.cp_kind = heads == 1 ? kRing : heads == cp ? kUlysses : CpKind::of_factors(cp / heads, heads);
        layout.cp_order = order;
        const std::int64_t T = layout.context_split(0).multiple() * 3;
        expect_varlen_learns_as_one_rank({.model = model, .layout = layout, .T = T, .B = 4});
      }
    }
}

TEST(VarlenInLayouts, LearnsInEverySchedule) {
  NamedSpec model = cut_specs()[8];
  model.spec.layers = 6;
  for (const ScheduleKind kind : kScheduleKinds) {
    LayoutSpec layout{.pp = 3};
    layout.schedule = kind;
    layout.chunks = usual_chunks(kind);
    layout.micro = 6;
    expect_varlen_learns_as_one_rank({.model = model, .layout = layout, .T = 10, .B = 12});
  }
}

// The losses of some steps, of every rank's part of the same batches, as they are or with padding.
std::vector<double> losses_of(const Replica::Options& options, bool pads) {
  const Replica::Options how = pads ? with_padding(options) : options;
  std::vector<double> losses;
  run_ranks(static_cast<int>(how.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    CpuDevice cpu;
    Replica replica(how, {*group, *group}, cpu.memory(), cpu.stream());
    replica.init_weights();
    for (unsigned step = 0; step < 5; ++step) {
      const TokenBatch batch = random_batch(options, step), all = pads ? padded(batch) : batch;
      const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(given.first * how.T),
                                        static_cast<std::size_t>(given.count * how.T));
      };
      const double loss = replica.step(part(all.tokens), part(all.targets)).loss;
      if (group->rank() == 0) losses.push_back(loss);
    }
    replica.drain();
    replica.settle();
  });
  return losses;
}

// Where steps overlap, the micro-batches of two of them are under way, each with its own rows.
TEST(VarlenInLayouts, LearnsWithoutAFlushWhatItLearnsWithPadding) {
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw}) {
    LayoutSpec layout{.dp = 2, .pp = 3, .schedule = kind, .micro = 4};
    const Replica::Options options = varlen_options(cut_specs()[8].spec, Precision::fp64, 16, 11, layout);
    const std::vector<double> without = losses_of(options, false), with = losses_of(options, true);
    for (std::size_t step = 0; step < with.size(); ++step)
      EXPECT_NEAR(without[step], with[step], 1e-11 * with[step]) << name_of(kind) << ", step " << step;
  }
}

TEST(VarlenInLayouts, LearnsAdaptersAsItDoesWithPadding) {
  for (const LayoutSpec& layout :
       {LayoutSpec{.micro = 4}, LayoutSpec{.pp = 2, .tp = 2, .micro = 2}, LayoutSpec{.dp = 2, .cp = 2, .zero = 3}}) {
    Replica::Options options = varlen_options(cut_specs()[8].spec, Precision::fp64, 8, 12, layout);
    options.how.lora = {.rank = 3};
    const std::vector<double> without = losses_of(options, false), with = losses_of(options, true);
    EXPECT_NE(with[4], with[0]);
    for (std::size_t step = 0; step < with.size(); ++step)
      EXPECT_NEAR(without[step], with[step], 1e-11 * with[step]) << to_text(layout) << ", step " << step;
  }
}

TEST(VarlenInLayouts, LearnsWithWhatIsRecomputedOrOffloadedAcrossRanks) {
  const NamedSpec model = cut_specs()[8];
  for (const auto& [recompute, offload] :
       {std::pair{Recompute::full, Offload::none}, std::pair{Recompute::projections, Offload::host},
        std::pair{Recompute::none, Offload::disk}})
    for (const CpKind kind : {kRing, kUlysses}) {
      LayoutSpec layout{.dp = 2, .pp = 2, .cp = 2, .tp = 2, .zero = 3};
      layout.micro = 2;
      layout.cp_kind = kind;
      MemorySpec memory;
      memory.recompute = recompute;
      memory.offload_activations = offload;
      expect_varlen_learns_as_one_rank({.model = model, .layout = layout, .T = 24, .B = 8}, memory);
    }
}

TEST(VarlenInLayouts, LearnsUnderServers) {
  LayoutSpec server{.dp = 2};
  server.dp_kind = DpKind::server;
  server.servers = 1;
  expect_varlen_learns_as_one_rank({.model = cut_specs()[8], .layout = server, .T = 12, .B = 6});
}

TEST(VarlenInLayouts, LosesLittleInBf16) {
  const auto learned = [](const LayoutSpec& layout) {
    Replica::Options options = learning_options(cut_specs()[8].spec, layout, Precision::bf16);
    options.B = 6;
    options.T = 24;
    leave_padding_out(options);
    return learn(options, 2);
  };
  const Learned one = learned({});
  for (const CpKind kind : {kRing, kUlysses, CpKind::of_factors(2, 2)}) {
    LayoutSpec layout{.cp = 4};
    layout.cp_kind = kind;
    const Learned cut = learned(layout);
    for (std::size_t step = 0; step < one.losses.size(); ++step)
      EXPECT_NEAR(cut.losses[step], one.losses[step], 5e-3) << kind.text();
  }
}

// Samples of two thirds of T.
TEST(VarlenInLayouts, CostsWhatMetaSays) {
  for (MeshCase one : mesh_sample(20, kSampleSeed + 1)) {
    one.model.spec.dropout = one.model.spec.attention_dropout = 0;
    expect_costs_as_on_meta(one, {}, samples_of(one.T, {(2 * one.T + 2) / 3}), true);
  }
}

// FLOPs of a step's forwards and backwards, of all ranks, as meta counts them.
double flops_of(const Replica::Options& options) {
  double all = 0;
  const auto ranks = static_cast<int>(options.layout.ranks());
  for (int rank = 0; rank < ranks; ++rank) {
    Ledger ledger;
    const auto memory = make_memory(Device::meta, ledger);
    meta::Stream stream;
    meta::Communicator group(rank, ranks);
    Replica replica(options, {group, group}, *memory, stream);
    stream.work() = {};
    replica.compute_gradients({}, {});
    all += static_cast<double>(stream.work().flops);
  }
  return all;
}

// A plan counts what the documents are, and no padding: as much as they would be in samples of their own lengths.
TEST(VarlenInLayouts, CountsTheWorkThatIsDone) {
  const std::int64_t T = 48, B = 8;
  for (const LayoutSpec& layout :
       {LayoutSpec{.micro = 2}, LayoutSpec{.dp = 2, .tp = 2}, LayoutSpec{.cp = 4},
        LayoutSpec{.cp = 4, .cp_kind = kUlysses}, LayoutSpec{.cp = 4, .cp_kind = CpKind::of_factors(2, 2)}}) {
    Replica::Options options = varlen_options(cut_specs()[8].spec, Precision::fp32, B, T, layout);
    const auto plain = [&](std::int64_t tokens, std::int64_t samples) {
      Replica::Options one = with_padding(options);
      one.how.documents = nullptr;
      one.B = samples;
      one.T = tokens;
      return flops_of(one);
    };
    options.how.documents = samples_of(T, {40, 40});
    EXPECT_NEAR(flops_of(options) / plain(40, B), 1, 1e-3) << to_text(layout);
    options.how.documents = samples_of(T, {16, 48});
    EXPECT_NEAR(flops_of(options) / (plain(16, B / 2) + plain(48, B / 2)), 1, 1e-3) << to_text(layout);
    EXPECT_LT(flops_of(options), 0.7 * flops_of(with_padding(options)) + 0.05 * plain(48, B)) << to_text(layout);
  }
}

// Documents of some tokens, some of none and one of many samples.
std::string write_documents(const TemporaryFolder& folder, int count) {
  std::string path = (folder.path() / "some.tokens").string();
  std::mt19937 random(8);
  TokenFileWriter writer(path, 16);
  for (int document = 0; document < count; ++document) {
    std::vector<std::int32_t> ids(document == 1 ? 60 : 1 + random() % 20);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 16);
    writer.add(ids);
  }
  writer.finish();
  return path;
}

void use_documents(RunSpec& run, const std::string& path) {
  run.model.dropout = run.model.attention_dropout = 0;
  run.data.synthetic.reset();
  run.data.tokens = path;
  run.data.documents = Documents::varlen;
}

// By a run file's keys, every layout sees the same samples; of two documents too, which are fewer than ranks.
TEST(VarlenInLayouts, OfATokenFileTrainAsOnOneRank) {
  for (const int documents : {60, 2}) {
    const TemporaryFolder folder;
    MeshCase one{.model = cut_specs()[8], .layout = {.dp = 2, .pp = 2, .cp = 2, .tp = 2, .zero = 2}, .T = 24, .B = 4};
    RunSpec run = one.run(Precision::fp64);
    use_documents(run, write_documents(folder, documents));
    run.data.eval_share = documents > 2 ? 0.05 : 0;
    LayoutSpec wide{.dp = 4};
    const LayoutReport report = compare_layouts(run, {LayoutSpec{}, one.layout, wide}, {.steps = 4});
    for (const LayoutVerdict& verdict : report.verdicts) EXPECT_FALSE(verdict.first) << verdict.first->what;
  }
}

TEST(VarlenInLayouts, ResumesInAnotherLayout) {
  const TemporaryFolder folder;
  RunSpec run = resumed_run(cut_specs()[8].spec, {.dp = 2, .pp = 2, .micro = 2});
  run.precision = Precision::fp64;
  use_documents(run, write_documents(folder, 60));
  const TrainedState whole = train_all(run, folder.path() / "whole");
  const std::filesystem::path saved = folder.path() / "whole" / step_folder_name(kSavedStep);
  EXPECT_EQ(train_all(run, folder.path() / "resumed", saved), whole);
  for (const LayoutSpec& layout : {LayoutSpec{}, LayoutSpec{.cp = 2, .tp = 2}, LayoutSpec{.dp = 4, .zero = 3}}) {
    RunSpec other = run;
    other.layout = layout;
    EXPECT_LE(distance(train_all(other, folder.path() / "elsewhere", saved), whole), 1e-11) << to_text(layout);
  }
}

}  // namespace
}  // namespace lockstep::tests
