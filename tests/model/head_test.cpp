// The head in tiles of tokens: losses, the gradient of its input and those of its weights against plain loops,
// whatever the tile, on one rank and where two cut the vocabulary.
#include "model/head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "comm/threads/run_ranks.h"
#include "kernels/cross_entropy.h"
#include "model/model.h"
#include "support/recipes.h"
#include "support/tensor_box.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kB = 2, kT = 9, kTokens = kB * kT;
constexpr double kScale = 1.0 / 13, kNaN = std::numeric_limits<double>::quiet_NaN();

// What goes in, and what plain loops over it give.
struct Plain {
  explicit Plain(const ModelSpec& spec)
      : rms(spec.norm == NormKind::rms),
        V(spec.vocabulary),
        C(spec.width),
        x(some(kTokens * C, 1)),
        head(some(V * C, 2)),
        norm(some(C, 3)),
        bias(rms ? std::vector<double>(static_cast<std::size_t>(C), 0.0) : some(C, 4)),
        dx(x.size()),
        d_head(head.size()),
        d_norm(norm.size()),
        d_bias(bias.size()) {
    for (std::int64_t n = 0; n < kTokens; ++n)
      targets.push_back(n % 5 == 3 ? -1 : static_cast<std::int32_t>((n * 11 + 3) % V));
    for (std::int64_t n = 0; n < kTokens; ++n) token(spec.norm_eps, n);
  }

  bool rms;
  std::int64_t V, C;
  std::vector<double> x, head, norm, bias;
  std::vector<std::int32_t> targets;
  std::vector<double> logits, losses, dx, d_head, d_norm, d_bias;

 private:
  static std::vector<double> some(std::int64_t count, std::uint64_t seed) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(normal_number(seed, i));
    return values;
  }

  void token(double eps, std::int64_t n) {
    const double count = static_cast<double>(C), *row = x.data() + n * C;
    double mean = 0, square = 0;
    for (std::int64_t c = 0; c < C && !rms; ++c) mean += row[c] / count;
    for (std::int64_t c = 0; c < C; ++c) square += (row[c] - mean) * (row[c] - mean) / count;
    const double rstd = 1 / std::sqrt(square + eps);
    const auto hat = [&](std::int64_t c) { return (row[c] - mean) * rstd; };

    double total = 0;
    for (std::int64_t v = 0; v < V; ++v) {
      double score = 0;
      for (std::int64_t c = 0; c < C; ++c) score += head[v * C + c] * (hat(c) * norm[c] + bias[c]);
      logits.push_back(score);
      total += std::exp(score);
    }
    const double* scores = logits.data() + n * V;
    losses.push_back(targets[n] < 0 ? 0 : std::log(total) - scores[targets[n]]);
    if (targets[n] < 0) return;

    std::vector<double> d_normed(static_cast<std::size_t>(C));
    for (std::int64_t v = 0; v < V; ++v) {
      const double d = kScale * (std::exp(scores[v]) / total - (v == targets[n] ? 1 : 0));
      for (std::int64_t c = 0; c < C; ++c) {
        d_head[v * C + c] += d * (hat(c) * norm[c] + bias[c]);
        d_normed[c] += d * head[v * C + c];
      }
    }
    double sum = 0, along = 0;  // of the gradient of what the norm scales, and that times what it scales
    for (std::int64_t c = 0; c < C; ++c) {
      d_norm[c] += d_normed[c] * hat(c);
      d_bias[c] += d_normed[c];
      sum += d_normed[c] * norm[c] / count;
      along += d_normed[c] * norm[c] * hat(c) / count;
    }
    for (std::int64_t c = 0; c < C; ++c)
      dx[n * C + c] = rstd * (d_normed[c] * norm[c] - (rms ? 0 : sum) - hat(c) * along);
  }
};

// A head of one rank, in fp64, with tiles of a given number of tokens.
class RankHead {
 public:
  RankHead(const ModelSpec& spec, const Plain& plain, std::int64_t tile, const TensorParallel* tensor)
      : plain_(plain),
        split_(tensor ? tensor->split() : TensorSplit{}),
        tensor_(tensor),
        model_(spec, kB, kT, DType::f64, {.split = split_, .loss_tokens = tile}),
        unit_(model_.unit(model_.units() - 1)),
        memory_(make_memory(Device::cpu, ledger_)),
        step_(model_.slots(), serial_step(model_.step_shape(1)), model_.step_shape(1), *memory_) {
    const Part& part = model_.head().vocabulary();
    for (const StoredParameter& p : unit_.layout().parameters()) {
      const Shape shape{std::span(p.shape)};
      tensors_.weights.push_back(box_.make(DType::f64, shape, constant(0)));
      tensors_.gradients.push_back(box_.make(DType::f64, shape));
    }
    weight(0, plain.norm);
    if (!plain.rms) weight(1, plain.bias);
    const auto row = plain.head.begin() + part.first * plain.C;
    weight(model_.head().weight(), std::vector<double>(row, row + part.count * plain.C));
    positions_ = box_.make(DType::i32, {kT}, positions());
    batch_.tokens = box_.make(DType::i32, {kB, kT}, constant(0));
    batch_.targets = ConstTensor(plain.targets.data(), DType::i32, Device::cpu, {kTokens});
    batch_.positions = positions_;
    batch_.loss_scale = ConstTensor(&kScale, DType::f64, Device::cpu, {1});
    batch_.losses = box_.make(DType::f64, {kTokens});
    for (std::int64_t i = 0; i < own_rows() * plain.C; ++i)
      box_.write(slot("x."), i, plain.x[row_of(i / plain.C) * plain.C + i % plain.C]);
  }

  const Head& head() const { return model_.head(); }
  std::int64_t own_rows() const { return split_.own_rows(kTokens); }
  std::int64_t row_of(std::int64_t own) const {
    for (std::int64_t c = 0;; ++c)
      if (const auto piece = split_.piece(kTokens, c); own < piece.own_first + piece.own_count)
        return piece.mine + own - piece.own_first;
  }

  void train(bool accumulate) {
    batch_.training = true;
    for (const Tensor& t : {slot("dx."), batch_.losses})
      for (std::int64_t i = 0; i < t.elements(); ++i) box_.write(t, i, kNaN);
    unit_.forward(call(accumulate));
    unit_.backward_input(call(accumulate));
    unit_.backward_weight(call(accumulate));
  }
  void evaluate() {
    batch_.training = false;
    for (std::int64_t i = 0; i < kTokens; ++i) box_.write(batch_.losses, i, kNaN);
    unit_.forward(call(false));
  }
  // Evaluates with these targets, which become their marks.
  void mark(std::vector<std::int32_t>& targets) {
    batch_.likeliest = Tensor(targets.data(), DType::i32, Device::cpu, {kTokens});
    batch_.targets = batch_.likeliest;
    evaluate();
  }
  std::vector<double> logits(std::int64_t first, std::int64_t count) {
    const Tensor out = box_.make(DType::f64, {count, head().vocabulary().each});
    head().logits(out, first, call(false));
    return box_.read(out);
  }
  std::vector<double> losses() const { return TensorBox::read(batch_.losses); }
  std::vector<double> dx() const { return TensorBox::read(slot("dx.")); }
  std::vector<double> gradient(int parameter) const { return TensorBox::read(tensors_.gradients[parameter]); }

 private:
  void weight(int parameter, const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      store_element(static_cast<std::byte*>(const_cast<void*>(tensors_.weights[parameter].raw())) + i * 8, DType::f64,
                    values[i]);
  }
  Tensor slot(const std::string& name) const {
    for (std::size_t i = 0; i < model_.slots().all().size(); ++i)
      if (model_.slots().all()[i].name == name + std::to_string(model_.units() - 1))
        return step_.of(0)[static_cast<Slot>(i)];
    throw std::logic_error("no slot " + name);
  }
  Call call(bool accumulate) {
    return {.unit = tensors_,
            .at = step_.of(0),
            .batch = batch_,
            .stream = box_.stream(),
            .accumulate = accumulate,
            .tensor = tensor_};
  }

  const Plain& plain_;
  TensorSplit split_;
  const TensorParallel* tensor_;
  Model model_;
  const Unit& unit_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  StepActivations step_;
  TensorBox box_;
  UnitTensors tensors_;
  Tensor positions_;
  Batch batch_;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-13) << what << " " << i;
}

std::vector<NamedSpec> specs() {  // norms of both kinds, tied and not, a vocabulary that 2 does not divide
  std::vector<NamedSpec> chosen;
  for (const NamedSpec& named : tiny_specs())
    if (named.name == "llama" || named.name == "llama_tied_scaled" || named.name == "gpt2") chosen.push_back(named);
  return chosen;
}

constexpr std::int64_t kTiles[] = {1, 4, 7, 9, 17, 18, 100};  // most of them leave a last one that is shorter

TEST(HeadInTiles, GivesTheNumbersOfPlainLoops) {
  for (const NamedSpec& named : specs()) {
    const Plain plain(named.spec);
    std::vector<double> losses, dx;  // of the first tile size: no tile changes a bit of them
    for (const std::int64_t tile : kTiles) {
      const std::string what = named.name + ", tiles of " + std::to_string(tile);
      RankHead one(named.spec, plain, tile, nullptr);
      ASSERT_EQ(one.head().tile(), tile);
      const int head = one.head().weight();
      one.train(false);
      expect_near(one.losses(), plain.losses, what + ": losses");
      expect_near(one.dx(), plain.dx, what + ": dx");
      expect_near(one.gradient(head), plain.d_head, what + ": the head's gradient");
      expect_near(one.gradient(0), plain.d_norm, what + ": the norm's gradient");
      if (!plain.rms) expect_near(one.gradient(1), plain.d_bias, what + ": the norm's bias");
      if (losses.empty()) losses = one.losses(), dx = one.dx();
      EXPECT_EQ(one.losses(), losses) << what;
      EXPECT_EQ(one.dx(), dx) << what;

      one.train(true);  // a second micro-batch adds to the first
      std::vector<double> twice = plain.d_head;
      for (double& v : twice) v *= 2;
      expect_near(one.gradient(head), twice, what + ": two micro-batches");
      one.train(false);  // and the first of the next step begins anew
      expect_near(one.gradient(head), plain.d_head, what + ": the next step");

      const std::vector<double> gradient = one.gradient(head);
      one.evaluate();
      EXPECT_EQ(one.losses(), losses) << what;
      EXPECT_EQ(one.gradient(head), gradient) << what << ": evaluation leaves gradients alone";
      expect_near(one.logits(0, kTokens), plain.logits, what + ": logits");
      expect_near(one.logits(5, 3), {plain.logits.begin() + 5 * plain.V, plain.logits.begin() + 8 * plain.V},
                  what + ": some logits");
    }
  }
}

TEST(HeadInTiles, GivesThemWhereTwoRanksCutTheVocabulary) {
  for (const NamedSpec& named : specs()) {
    const Plain plain(named.spec);
    for (const bool sequence : {false, true})
      for (const std::int64_t rows : {1, 3})  // pieces in which rows are exchanged
        for (const std::int64_t tile : kTiles) {
          const std::string what = named.name + (sequence ? ", sp" : "") + ", tiles of " + std::to_string(tile);
          std::mutex mutex;
          std::vector<double> d_norm(plain.d_norm.size()), dx(plain.dx.size(), kNaN);
          run_ranks(2, [&](std::unique_ptr<Communicator> group) {
            const TensorSplit split{.rank = group->rank(), .size = 2, .sequence = sequence, .pieces = rows};
            const TensorParallel tensor(*group, {.split = split});
            RankHead own(named.spec, plain, tile, &tensor);
            own.train(false);
            const std::lock_guard lock(mutex);
            expect_near(own.losses(), plain.losses, what + ": losses");
            const Part& part = own.head().vocabulary();
            std::vector<double> d_head(plain.d_head.begin() + part.first * plain.C,
                                       plain.d_head.begin() + (part.first + part.count) * plain.C);
            d_head.resize(static_cast<std::size_t>(part.each * plain.C));  // padding has none
            expect_near(own.gradient(own.head().weight()), d_head, what + ": the head's gradient");
            const std::vector<double> mine = own.dx(), norm = own.gradient(0);
            for (std::int64_t i = 0; i < std::ssize(mine); ++i)
              dx[own.row_of(i / plain.C) * plain.C + i % plain.C] = mine[i];
            for (std::size_t i = 0; i < norm.size(); ++i) d_norm[i] += norm[i] / (sequence ? 1 : 2);
          });
          expect_near(dx, plain.dx, what + ": dx");
          expect_near(d_norm, plain.d_norm, what + ": the norm's gradient");
        }
  }
}

// Some targets are the likeliest token, some are not, some are ignored.
std::vector<std::int32_t> chosen_targets(const Plain& plain) {
  std::vector<std::int32_t> targets = plain.targets;
  for (std::int64_t n = 0; n < kTokens; n += 2) {
    const auto row = plain.logits.begin() + n * plain.V;
    if (targets[n] != kIgnoredTarget)
      targets[n] = static_cast<std::int32_t>(std::max_element(row, row + plain.V) - row);
  }
  return targets;
}

// By a plain count over the logits of plain loops.
std::vector<std::int32_t> plain_marks(const Plain& plain, const std::vector<std::int32_t>& targets) {
  std::vector<std::int32_t> marks;
  for (std::int64_t n = 0; n < kTokens; ++n) {
    const double* row = plain.logits.data() + n * plain.V;
    std::int32_t larger = 0;
    for (std::int64_t v = 0; v < plain.V && targets[n] != kIgnoredTarget; ++v) larger += row[v] > row[targets[n]];
    marks.push_back(targets[n] == kIgnoredTarget ? kIgnoredTarget : larger == 0);
  }
  return marks;
}

TEST(HeadInTiles, MarksTheTargetsThatNoTokenHasALargerLogitThan) {
  for (const NamedSpec& named : specs()) {
    const Plain plain(named.spec);
    const std::vector<std::int32_t> targets = chosen_targets(plain), marks = plain_marks(plain, targets);
    for (const std::int32_t mark : {kIgnoredTarget, 0, 1}) ASSERT_GT(std::ranges::count(marks, mark), 2) << mark;
    for (const std::int64_t tile : kTiles) {
      const std::string what = named.name + ", tiles of " + std::to_string(tile);
      std::vector<std::int32_t> of_one = targets;
      RankHead(named.spec, plain, tile, nullptr).mark(of_one);
      EXPECT_EQ(of_one, marks) << what;
      for (const bool sequence : {false, true})
        run_ranks(2, [&](std::unique_ptr<Communicator> group) {
          const TensorParallel tensor(*group, {.split = {.rank = group->rank(), .size = 2, .sequence = sequence}});
          std::vector<std::int32_t> of_rank = targets;
          RankHead(named.spec, plain, tile, &tensor).mark(of_rank);
          EXPECT_EQ(of_rank, marks) << what << " of two ranks";
        });
    }
  }
}

// Every real vocabulary is taken in several tiles. By hand from the rule in head.cpp: an eighth of the tokens, no more
// than 2^29 logits; 2^23 logits or 128 tokens where that is more; in steps of 64.
TEST(HeadInTiles, HoldsAsManyLogitsAsItsRuleSays) {
  struct Case {
    std::int64_t tokens, vocabulary, tile;
  };
  for (const Case& c : {Case{18, 37, 18},
                        {2048, 257, 2048},
                        {1000, 50257, 192},
                        {8192, 50257, 1024},
                        {300, 128256, 128},
                        {32768, 128256, 4096},
                        {131072, 128256, 4224},
                        {100, 128256, 100}}) {
    ModelSpec spec = tiny_specs()[0].spec;
    spec.vocabulary = c.vocabulary;
    spec.max_positions = c.tokens;
    EXPECT_EQ(Model(spec, 1, c.tokens, DType::f32).head().tile(), c.tile) << c.tokens << " of " << c.vocabulary;
  }
}

}  // namespace
}  // namespace lockstep::tests
