// layout.embedding_gradient: the embedding's gradient sent by rows changes no bit of what is learned, and sends what
// the tokens say.
#include <gtest/gtest.h>

#include <set>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// 216 tokens in a step, of as many as this; a table of its own.
ModelSpec of_vocabulary(ModelSpec spec, std::int64_t vocabulary) {
  spec.vocabulary = vocabulary;
  spec.tied = false;
  return spec;
}

void expect_bits_of_dense(Replica::Options o) {
  constexpr int kSteps = 3;
  o.layout.embedding_gradient = EmbeddingGradient::dense;
  const Learned dense = learn(o, kSteps);
  EXPECT_GT(dense.norms[0], o.optimizer.clip) << "clipping is to be active";
  for (const EmbeddingGradient form : {EmbeddingGradient::rows, EmbeddingGradient::automatic}) {
    o.layout.embedding_gradient = form;
    expect_equal(learn(o, kSteps), dense, to_text(o.layout));
  }
}

TEST(EmbeddingGradient, ByRowsHasTheBitsOfDense) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const std::int64_t zero : {0, 1})
      for (const std::int64_t vocabulary : {997, 301}) {
        LayoutSpec layout{.dp = ranks, .micro = ranks % 2 == 0 ? 3 : 2, .zero = zero, .uneven = Switch::on};
        if (zero == 0 && ranks % 3 == 0) layout.bucket = 0;
        if (ranks % 4 == 1) layout.overlap = Switch::off;
        expect_bits_of_dense(
            learning_options(of_vocabulary(tiny_specs()[0].spec, vocabulary), layout, Precision::fp32));
      }
}

TEST(EmbeddingGradient, ByRowsHasTheBitsOfDenseInEveryFamilyAndType) {
  for (const NamedSpec& model : tiny_specs())
    for (const PrecisionSpec& precision :
         {PrecisionSpec(Precision::fp64), PrecisionSpec(Precision::bf16, StateType::bf16)}) {
      SCOPED_TRACE(model.name);
      for (const std::int64_t zero : {0, 1})
        expect_bits_of_dense(
            learning_options(of_vocabulary(model.spec, 997), {.dp = 3, .micro = 2, .zero = zero}, precision));
    }
}

// Gradients summed once per step under ZeRO 2 and 3 too; parts of the table, of samples and of the depth.
TEST(EmbeddingGradient, ByRowsHasTheBitsOfDenseOnAnyMesh) {
  for (const LayoutSpec& layout :
       {LayoutSpec{.dp = 2, .cp = 3, .cp_order = CpOrder::plain, .micro = 2},
        LayoutSpec{.dp = 3, .tp = 3, .sp = Switch::on}, LayoutSpec{.dp = 3, .tp = 3, .sp = Switch::off},
        LayoutSpec{.dp = 3, .pp = 2, .micro = 4},
        LayoutSpec{.dp = 3, .pp = 2, .schedule = ScheduleKind::zb_h1, .micro = 4, .zero = 1},
        LayoutSpec{.dp = 3, .micro = 2, .zero = 2, .grad_sync = GradSync::step},
        LayoutSpec{.dp = 3, .micro = 2, .zero = 3, .grad_sync = GradSync::step},
        LayoutSpec{.dp = 3, .micro = 2, .zero = 3, .grad_sync = GradSync::step, .wrap = WrapRule::of_blocks({2})}})
    expect_bits_of_dense(learning_options(of_vocabulary(tiny_specs()[6].spec, 997), layout, Precision::fp32));
}

// A tied head has a gradient in every row: `auto` sums them all.
TEST(EmbeddingGradient, OfATiedTableIsDense) {
  Replica::Options o = learning_options(of_vocabulary(tiny_specs()[1].spec, 997), {.dp = 3}, Precision::fp32);
  o.spec.tied = true;
  const Learned dense = learn(o, 2);
  const Sent sent = on_meta(o, 1).sent;
  o.layout.embedding_gradient = EmbeddingGradient::automatic;
  expect_equal(learn(o, 2), dense, "auto");
  EXPECT_EQ(on_meta(o, 1).sent, sent);
}

// What one all-reduce of so many elements sends from this rank.
std::int64_t sent_by_all_reduce(std::int64_t elements, int rank, int ranks) {
  if (elements == 0) return 0;
  CommLog log;
  Recorder recorded(std::make_unique<meta::Communicator>(rank, ranks), log);
  recorded.all_reduce(Tensor(nullptr, DType::f32, Device::meta, {elements}))->wait();
  return log.totals().begin()->second.sent;
}

// The rows that anybody has in the step that on_threads() takes.
std::int64_t rows_that_occur(const Replica::Options& o) {
  const TokenBatch batch = random_batch(o, 1);
  return std::ssize(std::set<std::int32_t>(batch.tokens.begin(), batch.tokens.end()));
}

TEST(EmbeddingGradientMessages, AreTheRowsThatOccurAndABitForEach) {
  for (const std::int64_t vocabulary : {997, 301})
    for (const EmbeddingGradient form : {EmbeddingGradient::rows, EmbeddingGradient::automatic})
      for (const int ranks : {2, 3, 5, 8}) {
        Replica::Options o = learning_options(of_vocabulary(tiny_specs()[0].spec, vocabulary),
                                              {.dp = ranks, .bucket = 0, .uneven = Switch::on}, Precision::fp32);
        const std::int64_t rows = rows_that_occur(o), C = o.spec.width,
                           all = round_up(vocabulary * C, std::int64_t{256});
        const bool dense = form == EmbeddingGradient::automatic && rows > vocabulary / 2;
        EXPECT_EQ(vocabulary == 997, rows <= vocabulary / 2) << "of 997 few occur, of 301 most: " << rows;
        const std::vector<Recorded> without = on_threads(o);
        o.layout.embedding_gradient = form;
        const std::vector<Recorded> with = on_threads(o);
        for (int r = 0; r < ranks; ++r) {
          const auto of = [&](const std::vector<Recorded>& step, CommOp op, DType type) {
            return step[static_cast<std::size_t>(r)].elements(op, type);
          };
          const std::int64_t others = of(without, CommOp::all_reduce, DType::f32) - sent_by_all_reduce(all, r, ranks);
          EXPECT_EQ(of(with, CommOp::all_reduce, DType::f32) - others,
                    sent_by_all_reduce(dense ? all : rows * C, r, ranks))
              << to_text(o.layout) << ", rank " << r;
          EXPECT_EQ(of(with, CommOp::all_gather, DType::i32) - of(without, CommOp::all_gather, DType::i32),
                    (ranks - 1) * ((vocabulary + 31) / 32));
          // What a plan says is the most.
          const Recorded meta = on_meta(o, r);
          const std::int64_t most = std::min(vocabulary, o.B * o.T);
          const bool most_dense = form == EmbeddingGradient::automatic && most > vocabulary / 2;
          EXPECT_EQ(meta.elements(CommOp::all_reduce, DType::f32) - others,
                    sent_by_all_reduce(most_dense ? all : most * C, r, ranks))
              << to_text(o.layout) << ", rank " << r;
          EXPECT_GE(meta.elements(CommOp::all_reduce, DType::f32), of(with, CommOp::all_reduce, DType::f32));
        }
      }
}

// Where every row occurs, what a plan says is what is sent; and memory is what it says in any case.
TEST(EmbeddingGradientMessages, AndMemoryAreWhatMetaSays) {
  for (const std::int64_t zero : {0, 1, 3})
    for (const std::int64_t vocabulary : {5, 997}) {
      LayoutSpec layout{
          .dp = 3, .zero = zero, .grad_sync = GradSync::step, .embedding_gradient = EmbeddingGradient::rows};
      const Replica::Options o =
          learning_options(of_vocabulary(tiny_specs()[6].spec, vocabulary), layout, Precision::fp32);
      if (vocabulary == 5) {
        ASSERT_EQ(rows_that_occur(o), vocabulary);
        const std::vector<Recorded> real = on_threads(o);
        for (int r = 0; r < 3; ++r)
          EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent) << "rank " << r;
      }
      run_ranks(3, [&](std::unique_ptr<Communicator> group) {
        CpuDevice cpu;
        MetaDevice meta;
        meta::Communicator counted(group->rank(), 3);
        const Replica real(o, {*group, *group}, cpu.memory(), cpu.stream());
        const Replica planned(o, {counted, counted}, meta.memory(), meta.stream());
        for (const Tag tag : {Tag::parameter, Tag::gradient, Tag::optimizer, Tag::activation, Tag::communication})
          EXPECT_EQ(cpu.memory().ledger().current(tag), meta.memory().ledger().current(tag)) << name_of(tag);
        const Ledger::Rows held = meta.memory().ledger().rows();
        const auto row = held.find({Tag::communication, "rows of the embedding"});
        ASSERT_TRUE(row != held.end());
        const std::int64_t most = std::min(vocabulary, o.B * o.T);  // rows, each with its number
        EXPECT_EQ(row->second.current, round_up(most * o.spec.width * 4, kAlignment) + round_up(most * 4, kAlignment) +
                                           round_up(4 * ((vocabulary + 31) / 32) * 4, kAlignment));
      });
    }
}

// Whatever the form, and whether the embedding's unit is all-reduced in place of a reduce-scatter; with positions'
// table beside it.
TEST(EmbeddingGradientMessages, AreNeverMoreThanAPlanSays) {
  const auto bytes = [](const Sent& sent) {
    std::int64_t all = 0;
    for (const auto& [key, counts] : sent) all += counts[1] * size_of(key.second);
    return all;
  };
  for (const std::int64_t zero : {0, 1})
    for (const EmbeddingGradient form : {EmbeddingGradient::rows, EmbeddingGradient::automatic})
      for (const std::int64_t vocabulary : {37, 350, 380, 450, 997}) {
        LayoutSpec layout{.dp = 3, .zero = zero, .embedding_gradient = form};
        const Replica::Options o =
            learning_options(of_vocabulary(tiny_specs()[6].spec, vocabulary), layout, Precision::fp32);
        const std::vector<Recorded> real = on_threads(o);
        for (int r = 0; r < 3; ++r)
          EXPECT_LE(bytes(real[static_cast<std::size_t>(r)].sent), bytes(on_meta(o, r).sent))
              << to_text(layout) << ", " << vocabulary << " tokens, rank " << r;
      }
}

// A step whose gradient is not finite updates nothing, is searched, and the next one is as any other.
TEST(EmbeddingGradient, ByRowsOfAStepWithABadValueIsFoundAndForgotten) {
  Replica::Options o = learning_options(of_vocabulary(tiny_specs()[0].spec, 997),
                                        {.dp = 3, .embedding_gradient = EmbeddingGradient::rows}, Precision::fp32);
  run_ranks(3, [&](std::unique_ptr<Communicator> group) {
    CpuDevice cpu;
    Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const TokenBatch all = random_batch(o, 1);
    const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                      static_cast<std::size_t>(given.count * o.T));
    };
    const std::vector<Replica::Named> tensors = replica.tensors();
    float& weight = tensors[0].master.data<float>()[part(all.tokens)[0] * o.spec.width];
    const float was = weight;
    if (group->rank() == 1) weight = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(replica.step(part(all.tokens), part(all.targets)).updated);
    EXPECT_TRUE(replica.find_bad_value(part(all.tokens), part(all.targets)).has_value());
    weight = was;
    EXPECT_TRUE(replica.step(part(all.tokens), part(all.targets)).updated);
  });
}

}  // namespace
}  // namespace lockstep::tests
