// Loss on answers alone: targets that are not marked count neither in the loss nor in its denominator, gradients,
// accuracy or evaluation, whatever the layout; held to the published models in plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "data/token_file_writer.h"
#include "support/host_run.h"
#include "support/mesh_matrix.h"
#include "support/naive_model.h"
#include "support/program.h"
#include "support/recipes.h"
#include "support/tiny_specs.h"
#include "train/layout_trial.h"
#include "train/run_data.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

// Conversations as a file has them: turns, of which every second is an answer; some have none in reach of a window.
struct Talk {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;
};
std::vector<Talk> some_talks(int count, std::int32_t vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Talk> all(static_cast<std::size_t>(count));
  for (Talk& talk : all) {
    for (std::size_t turn = 0, turns = 2 * (1 + random() % 2); turn < turns; ++turn)
      // Every fifth begins with more than a window.
      for (std::size_t more = turn == 0 && random() % 5 == 0 ? 60 : 1 + random() % (turn % 2 == 0 ? 25 : 9); more > 0;
           --more) {
        talk.ids.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary)));
        talk.targets.push_back(turn % 2 == 0 ? 0 : 1);
      }
  }
  return all;
}
void write_talks(const std::string& path, const std::vector<Talk>& talks, std::int64_t vocabulary) {
  TokenFileWriter writer(path, vocabulary, Marks::yes);
  for (const Talk& talk : talks) writer.add(talk.ids, talk.targets);
  writer.finish();
}

using WeightsByName = std::map<std::string, Values>;

// The mean loss of the targets that are there, over those of all samples.
double plain_loss(const ModelSpec& spec, const WeightsByName& weights, const TokenBatch& batch, std::int64_t T) {
  double sum = 0;
  std::int64_t counted = 0;
  for (std::size_t at = 0; at < batch.tokens.size(); at += static_cast<std::size_t>(T)) {
    const auto part = [&](const std::vector<std::int32_t>& all) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(at);
      return std::vector<int>(first, first + static_cast<std::ptrdiff_t>(T));
    };
    const std::vector<int> targets = part(batch.targets);
    counted += T - std::ranges::count(targets, kNoTarget);
    const Values losses = naive_losses(
        naive_logits(
            spec, [&](const std::string& name) -> const Values& { return weights.at(name); }, part(batch.tokens)),
        targets);
    sum = std::accumulate(losses.begin(), losses.end(), sum);
  }
  return sum / static_cast<double>(counted);
}

// The derivative of the plain loss along a direction of one tensor, by differences of the eighth order.
double plain_derivative(const ModelSpec& spec, WeightsByName weights, const std::string& tensor,
                        const Values& direction, const TokenBatch& batch, std::int64_t T) {
  constexpr double kStep = 0.001, kFactors[] = {4.0 / 5, -1.0 / 5, 4.0 / 105, -1.0 / 280};
  const Values at = weights.at(tensor);
  const auto loss = [&](double way) {
    Values& moved = weights.at(tensor);
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = at[i] + way * direction[i];
    return plain_loss(spec, weights, batch, T);
  };
  double sum = 0;
  for (int k = 1; k <= 4; ++k) sum += kFactors[k - 1] * (loss(k * kStep) - loss(-k * kStep));
  return sum / kStep;
}

double dot(const Values& a, const Values& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

class AnswerTargets : public ::testing::TestWithParam<NamedSpec> {};

// A batch in which few targets count, and in one sample none.
TEST_P(AnswerTargets, HaveTheLossAndTheGradientsOfPlainLoopsThatCountThemAlone) {
  ModelSpec spec = GetParam().spec;
  spec.dropout = spec.attention_dropout = 0;
  Replica::Options options{.spec = spec, .B = 3, .T = 7, .precision = Precision::fp64, .seed = 5};
  TokenBatch batch = random_batch(options, 2);
  for (std::size_t i = 0; i < batch.targets.size(); ++i)
    if (i / 7 == 1 || i % 7 < 3 || i % 7 == 6) batch.targets[i] = kNoTarget;
  ASSERT_GT(std::ranges::count_if(batch.targets, [](std::int32_t t) { return t != kNoTarget; }), 3);
  HostRun run(options);
  run.replica->init_weights();
  WeightsByName weights;
  for (const auto& t : run.replica->tensors())
    if (!t.runs.empty()) weights[t.tensor.name] = to_doubles(t.master, *run.stream);
  const double loss = run.replica->compute_gradients(batch.tokens, batch.targets);
  EXPECT_NEAR(loss, plain_loss(spec, weights, batch, options.T), 1e-11 * loss);

  std::map<std::string, Values> gradients;
  double squares = 0;
  for (const auto& t : run.replica->tensors())
    if (!t.runs.empty()) {
      Values& own = gradients[t.tensor.name] = to_doubles(t.gradient, *run.stream);
      squares += dot(own, own);
    }
  std::mt19937 random(3);
  for (const auto& [name, gradient] : gradients) {
    // Along itself a gradient's derivative is its norm, whatever else it should have held.
    const double norm = std::sqrt(dot(gradient, gradient));
    Values along = gradient, any(gradient.size());
    for (double& v : along) v /= std::max(norm, 1e-300);
    for (double& v : any) v = static_cast<double>(random() % 2001) / 1000 - 1;
    const double size = std::sqrt(dot(any, any));
    for (double& v : any) v /= size;
    for (const Values* way : {&along, &any})
      EXPECT_NEAR(plain_derivative(spec, weights, name, *way, batch, options.T), dot(gradient, *way),
                  1e-11 * std::sqrt(squares))
          << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AnswerTargets, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

RunSpec run_of(const MeshCase& one, const std::string& path, Documents documents, Precision precision) {
  RunSpec run = one.run(precision);
  run.data.synthetic.reset();
  run.data.tokens = path;
  run.data.documents = documents;
  return run;
}

// In every kind of layout at once, from a file, with micro-batches that have no target at all.
TEST(AnswerTargetsInLayouts, TrainAsOnOneRankFromAFileOfConversations) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "talks.tokens").string();
  write_talks(path, some_talks(60, 16, 8), 16);
  const NamedSpec model = cut_specs()[8];
  const std::vector<LayoutSpec> layouts = {
      {.dp = 2, .pp = 2, .cp = 2, .tp = 2, .zero = 2},
      {.dp = 4, .zero = 3},
      {.tp = 4, .micro = 4},
      {.pp = 2, .cp = 2, .micro = 4},
  };
  for (const Documents documents : {Documents::stream, Documents::masked, Documents::packed, Documents::nosplit})
    for (const auto& [precision, tolerant] : {std::pair{Precision::fp64, false}, std::pair{Precision::fp32, true}}) {
      if (tolerant && documents != Documents::nosplit) continue;
      const MeshCase one{.model = model, .layout = layouts[0], .T = 24, .B = 4};
      const RunSpec run = run_of(one, path, documents, precision);
      std::vector<LayoutSpec> all = {LayoutSpec{}};
      all.insert(all.end(), layouts.begin(), layouts.end());
      const LayoutReport report = compare_layouts(run, all, {.steps = 3});
      for (std::size_t i = 0; i < report.verdicts.size(); ++i)
        EXPECT_FALSE(report.verdicts[i].first)
            << name_of(documents) << ", " << to_text(layouts[i]) << ": " << report.verdicts[i].first->what;
      // Samples without a target, which are micro-batches of their own in some layouts.
      const RunData data(run);
      std::vector<std::int32_t> tokens(4 * 24), targets(4 * 24);
      int without = 0, with = 0;
      for (std::int64_t step = 0; step < 3; ++step) {
        data.training_batch(4 * step, tokens, targets);
        for (std::size_t b = 0; b < 4; ++b) {
          const auto own = std::span(targets).subspan(b * 24, 24);
          ++(std::ranges::all_of(own, [](std::int32_t t) { return t == kNoTarget; }) ? without : with);
        }
      }
      EXPECT_GT(with, 0);
      const bool windows = documents == Documents::stream || documents == Documents::masked;
      EXPECT_EQ(without > 0, windows) << name_of(documents);
    }
}

// Of a batch in which nothing counts: no loss, no gradient, and no number that is not finite.
TEST(AnswerTargetsInLayouts, ABatchWithoutAnyHasNoLossAndNoGradient) {
  Replica::Options options{.spec = cut_specs()[8].spec, .B = 4, .T = 6, .precision = Precision::fp32, .seed = 5};
  options.layout.micro = 4;
  options.spec.dropout = options.spec.attention_dropout = 0;
  TokenBatch batch = random_batch(options, 2);
  std::ranges::fill(batch.targets, kNoTarget);
  HostRun run(options);
  run.replica->init_weights();
  EXPECT_EQ(run.replica->compute_gradients(batch.tokens, batch.targets), 0);
  for (const auto& t : run.replica->tensors()) {
    if (t.runs.empty()) continue;
    for (const double v : to_doubles(t.gradient, *run.stream)) ASSERT_EQ(v, 0) << t.tensor.name;
  }
}

// Evaluation against plain loops over the file: loss and accuracy are of the marked targets alone.
TEST(AnswerTargetsInLayouts, AreAllThatEvaluationCounts) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "talks.tokens").string();
  const std::vector<Talk> talks = some_talks(40, 16, 9);
  write_talks(path, talks, 16);
  RunSpec spec;
  spec.model = tiny_specs().front().spec;
  spec.data.tokens = path;
  spec.data.documents = Documents::nosplit;
  spec.data.seq = 40;
  spec.data.eval_share = 0.3;
  spec.train = {.steps = 2, .global_batch = 2, .eval_batches = 3, .save_last = false};
  spec.precision = Precision::fp64;
  spec.run.threads = 1;
  ASSERT_GE(spec.model.max_positions, 40);
  TrainingRun run(spec, Device::cpu, folder.path());
  run.init_weights();
  WeightsByName weights;
  for (const auto& t : run.replica().tensors()) weights[t.tensor.name] = to_doubles(t.master, run.stream());
  // The batches that are evaluated, document by document.
  const RunData data(spec);
  double sum = 0;
  std::int64_t counted = 0, likeliest = 0, batches = 0;
  double mean = 0;
  for (; batches < 3; ++batches) {
    std::vector<std::int32_t> tokens(2 * 40), targets(2 * 40);
    data.evaluation_batch(2 * batches, tokens, targets);
    for (std::size_t from = 0, to; from < tokens.size(); from = to) {
      for (to = from + 1; to < tokens.size() && to % 40 != 0 && (tokens[to] & kBeginsDocument) == 0;) ++to;
      std::vector<int> own(tokens.begin() + static_cast<std::ptrdiff_t>(from),
                           tokens.begin() + static_cast<std::ptrdiff_t>(to));
      own[0] &= ~kBeginsDocument;
      const std::vector<int> wanted(targets.begin() + static_cast<std::ptrdiff_t>(from),
                                    targets.begin() + static_cast<std::ptrdiff_t>(to));
      const Values logits = naive_logits(
          spec.model, [&](const std::string& name) -> const Values& { return weights.at(name); }, own);
      const Values losses = naive_losses(logits, wanted);
      const std::int64_t V = spec.model.vocabulary;
      for (std::size_t t = 0; t < wanted.size(); ++t) {
        if (wanted[t] == kNoTarget) continue;
        sum += losses[t], ++counted;
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(t) * V;
        likeliest += std::none_of(row, row + V, [&](double v) { return v > row[wanted[t]]; }) ? 1 : 0;
      }
    }
  }
  mean = sum / static_cast<double>(counted);
  const auto evaluation = run.evaluate();
  EXPECT_NEAR(evaluation.loss, mean, 1e-11 * mean);
  EXPECT_EQ(evaluation.accuracy, static_cast<double>(likeliest) / static_cast<double>(counted));
  EXPECT_LT(counted, 3 * 2 * 40 / 2) << "or nearly all count";
}

}  // namespace
}  // namespace lockstep::tests
