// Samples that are several documents: a packed batch learns what its documents learn one by one, in every layout.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "comm/meta/communicator.h"
#include "data/token_file_writer.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/mesh_matrix.h"
#include "support/naive_model.h"
#include "support/one_by_one.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"
#include "train/layout_trial.h"

namespace lockstep::tests {
namespace {

std::shared_ptr<const DocumentPairs> some_documents(std::int64_t T) {
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(T) + 1, 1);
  return std::make_shared<const DocumentPairs>(T, T, lengths);  // what is expected of them changes no number
}

Replica::Options document_options(ModelSpec spec, Precision precision, std::int64_t B, std::int64_t T) {
  spec.dropout = spec.attention_dropout = 0;
  Replica::Options options{.spec = spec, .B = B, .T = T, .precision = precision, .seed = 5};
  options.how.documents = some_documents(T);
  return options;
}

class DocumentsOf : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(DocumentsOf, LearnOneByOneWhatTheyLearnTogether) {
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}})
    for (const unsigned seed : {1U, 2U}) {
      const Replica::Options options = document_options(GetParam().spec, precision, 3, 29);
      const TokenBatch batch = random_batch(options, seed);
      ASSERT_GT(documents_of(batch, options.T).size(), 5U);
      expect_same(run_batch(options, batch), run_one_by_one(options, batch), tolerance,
                  fmt::format("{}, seed {}", name_of(precision), seed));
    }
}

// Shorter and longer than attention's tiles.
TEST_P(DocumentsOf, OfManyLengthsLearnWhatTheyLearnAlone) {
  ModelSpec spec = GetParam().spec;
  spec.max_positions = 300;
  spec.layers = 1;
  const Replica::Options options = document_options(spec, Precision::fp64, 1, 260);
  TokenBatch batch = random_batch(options, 3);
  for (std::int32_t& token : batch.tokens) token &= ~kBeginsDocument;
  for (const std::size_t begin : {1, 2, 70, 75, 205, 259}) {
    batch.tokens[begin] |= kBeginsDocument;
    batch.targets[begin - 1] = kNoTarget;
  }
  expect_same(run_batch(options, batch), run_one_by_one(options, batch), 1e-11, "");
}

// Nothing of the library but its weights.
TEST_P(DocumentsOf, HaveTheLogitsOfThePublishedModel) {
  const Replica::Options options = document_options(GetParam().spec, Precision::fp64, 2, 17);
  const TokenBatch batch = random_batch(options, 4);
  HostRun run(options);
  run.replica->init_weights();
  std::map<std::string, Values> values;
  for (const auto& t : run.replica->tensors())
    if (!t.runs.empty()) values[t.tensor.name] = to_doubles(t.master, *run.stream);
  Values logits(static_cast<std::size_t>(options.B * options.T * options.spec.vocabulary));
  run.replica->evaluate(batch.tokens, batch.targets, logits);
  for (const PlacedDocument& d : documents_of(batch, options.T)) {
    std::vector<int> tokens(batch.tokens.begin() + static_cast<std::ptrdiff_t>(d.begin),
                            batch.tokens.begin() + static_cast<std::ptrdiff_t>(d.begin + d.count));
    tokens[0] &= ~kBeginsDocument;
    const Values expected = naive_logits(
        options.spec, [&](const std::string& name) -> const Values& { return values.at(name); }, tokens);
    const std::span own =
        std::span(logits).subspan(d.begin * static_cast<std::size_t>(options.spec.vocabulary), expected.size());
    EXPECT_LT(relative(own, expected), 1e-11) << "the document at " << d.begin;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DocumentsOf, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

// One document per sample is what a sample is without masks.
TEST(Documents, ThatAreOneLearnTheBitsOfAStream) {
  for (const NamedSpec& model : tiny_specs()) {
    const Replica::Options with = document_options(model.spec, Precision::fp32, 4, 33);
    Replica::Options without = with;
    without.how.documents = nullptr;
    TokenBatch batch = random_batch(without, 6);
    const Found plain = run_batch(without, batch);
    for (std::size_t at = 0; at < batch.tokens.size(); at += 33) batch.tokens[at] |= kBeginsDocument;
    const Found one = run_batch(with, batch);
    EXPECT_EQ(one.loss, plain.loss) << model.name;
    EXPECT_EQ(one.logits, plain.logits) << model.name;
    EXPECT_EQ(one.gradients, plain.gradients) << model.name;
  }
}

// Where attention's tiles begin with the document, every sum is in the same order as alone: positions too are the same,
// though RoPE, which only turns queries against keys, would learn nearly as much from shifted ones.
TEST(Documents, AtABorderOfTilesHaveTheBitsTheyHaveAlone) {
  constexpr std::int64_t kEach = 64;
  for (NamedSpec model : tiny_specs()) {
    model.spec.max_positions = std::max<std::int64_t>(model.spec.max_positions, 3 * kEach);
    const Replica::Options options = document_options(model.spec, Precision::fp32, 1, 3 * kEach);
    TokenBatch batch = random_batch(options, 9);
    for (std::int32_t& token : batch.tokens) token &= ~kBeginsDocument;
    for (const std::int64_t begin : {kEach, 2 * kEach}) {
      batch.tokens[static_cast<std::size_t>(begin)] |= kBeginsDocument;
      batch.targets[static_cast<std::size_t>(begin - 1)] = kNoTarget;
    }
    EXPECT_EQ(run_batch(options, batch).logits, run_one_by_one(options, batch).logits) << model.name;
  }
}

// What was recomputed sees the same masks.
TEST(Documents, ChangeNoBitWithWhatIsRecomputed) {
  for (const NamedSpec& model : tiny_specs()) {
    Replica::Options options = document_options(model.spec, Precision::fp32, 2, 21);
    const TokenBatch batch = random_batch(options, 7);
    const Found plain = run_batch(options, batch);
    for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
      options.how.memory.recompute = recompute;
      EXPECT_EQ(run_batch(options, batch).gradients, plain.gradients) << model.name << ", " << name_of(recompute);
    }
  }
}

constexpr unsigned kSampleSeed = 21;

// With dropout too: its masks are keyed on where a token is in its sample.
void expect_documents_learn_as_one_rank(const MeshCase& one) {
  for (const auto& [precision, tolerances] :
       {std::pair{Precision::fp64, kCloseInDouble}, std::pair{Precision::fp32, kCloseInSingle}}) {
    const auto learned = [&, precision = precision](const LayoutSpec& layout) {
      Replica::Options options = learning_options(one.model.spec, layout, precision);
      options.B = one.B;
      options.T = one.T;
      options.how.documents = some_documents(one.T);
      return learn(options, 2);
    };
    expect_close(learned(one.layout), learned({}), tolerances, one.words());
  }
}

TEST(DocumentsInLayouts, LearnWhatOneRankLearns) {
  for (const MeshCase& one : mesh_sample(45, kSampleSeed)) expect_documents_learn_as_one_rank(one);
}

// Rings and exchanged heads, in both orders, with documents that begin on one rank and end on another.
TEST(DocumentsInLayouts, LearnWhatOneRankLearnsInEveryKindOfContext) {
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
        expect_documents_learn_as_one_rank({.model = model, .layout = layout, .T = T, .B = 4});
      }
    }
}

TEST(DocumentsInLayouts, LoseLittleInBf16) {
  const auto learned = [](const LayoutSpec& layout) {
    Replica::Options options = learning_options(cut_specs()[8].spec, layout, Precision::bf16);
    options.B = 6;
    options.T = 24;
    options.how.documents = some_documents(24);
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

TEST(DocumentsInLayouts, CostWhatMetaSays) {
  for (const MeshCase& one : mesh_sample(15, kSampleSeed + 1)) expect_costs_as_on_meta(one, {}, some_documents(one.T));
}

// A run of packed documents, by its run file's keys: every layout sees the same samples.
TEST(DocumentsInLayouts, OfATokenFileTrainAsOnOneRank) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "some.tokens").string();
  std::mt19937 random(8);
  TokenFileWriter writer(path, 16);
  for (int document = 0; document < 60; ++document) {
    std::vector<std::int32_t> ids(1 + random() % 40);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 16);
    writer.add(ids);
  }
  writer.finish();
  for (const Documents documents : {Documents::masked, Documents::packed, Documents::nosplit}) {
    MeshCase one{.model = cut_specs()[8], .layout = {.dp = 2, .pp = 2, .cp = 2, .tp = 2, .zero = 2}, .T = 24, .B = 4};
    RunSpec run = one.run(Precision::fp64);
    run.data.synthetic.reset();
    run.data.tokens = path;
    run.data.documents = documents;
    const LayoutReport report = compare_layouts(run, {LayoutSpec{}, one.layout}, {.steps = 4});
    EXPECT_FALSE(report.verdicts.at(0).first) << name_of(documents) << ": " << report.verdicts.at(0).first->what;
  }
}

// FLOPs of a step of all ranks, as meta counts them.
double flops_of(Replica::Options options) {
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

// A plan counts the pairs that documents have, alone and in every kind of context.
TEST(DocumentsInLayouts, CountTheAttentionThatIsDone) {
  const std::int64_t T = 48, B = 4;
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(T) + 1);
  lengths[5] = 12, lengths[17] = 8, lengths[30] = 4;
  for (const CpKind kind : {kRing, kUlysses, CpKind::of_factors(2, 2)}) {
    Replica::Options options = document_options(cut_specs()[8].spec, Precision::fp32, B, T);
    options.layout.cp = 4;
    options.layout.cp_kind = kind;
    options.how.documents = std::make_shared<const DocumentPairs>(B, T, lengths);
    Replica::Options whole = options;
    whole.how.documents = nullptr;
    // Forward and backward are 4 and 10 operations for each pair and element of a head (kernels/meta/attention.cpp).
    const ModelSpec& spec = options.spec;
    const double each = 14 * static_cast<double>(spec.layers * spec.heads * spec.head_width * B);
    const double hidden = static_cast<double>(T * (T + 1) / 2) - options.how.documents->all_pairs();
    EXPECT_NEAR(flops_of(whole) - flops_of(options), each * hidden, 1e-3 * each * hidden) << kind.text();
  }
}

TEST(DocumentsInLayouts, LearnUnderCentralDataParallelAndServers) {
  const NamedSpec model = cut_specs()[8];
  LayoutSpec central{.dp = 3};
  central.dp_kind = DpKind::central;
  LayoutSpec server{.dp = 2};
  server.dp_kind = DpKind::server;
  server.servers = 1;
  for (const LayoutSpec& layout : {central, server})
    expect_documents_learn_as_one_rank({.model = model, .layout = layout, .T = 12, .B = 6});
}

}  // namespace
}  // namespace lockstep::tests
