// Masks that grow: what any layout learns under one is what a plain serial program learns
// (support/serial_sparsity.h), and the state takes the bytes that meta says.
#include <gtest/gtest.h>

#include <set>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/serial_sparsity.h"
#include "support/tiny_specs.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

constexpr int kSparseSteps = 20;

// Masks before steps 6, 10 and 14.
SparsitySpec growing(SparsityKind kind) { return {.kind = kind, .share = 0.7, .begin = 2, .end = 14, .every = 4}; }

// Widths that 4 divides.
ModelSpec even(ModelSpec spec) {
  spec.ffn_width = 28;
  return spec;
}

Replica::Options sparse_options(const ModelSpec& spec, const LayoutSpec& layout, SparsityKind kind) {
  Replica::Options o = learning_options(even(spec), layout, Precision::fp64);
  o.sparsity = growing(kind);
  return o;
}

LayoutSpec sparse_layout(int ranks, std::int64_t zero = 0) {
  LayoutSpec layout{.dp = ranks, .micro = ranks % 2 == 0 ? 2 : 1, .zero = zero};
  layout.grad_sync = LayoutSpec::usual_sync(zero);
  if (kLearningSamples % (ranks * layout.micro) != 0) layout.uneven = Switch::on;
  return layout;
}

void expect_masks_as_serial(const Replica::Options& o, const SparseLearned& serial) {
  const std::string what = fmt::format("{}, {}", to_text(o.layout), name_of(o.sparsity.kind));
  EXPECT_GT(serial.learned.norms[0], o.optimizer.clip) << "clipping is to be active";
  const Learned learned = learn(o, kSparseSteps);
  expect_close(learned, serial.learned, 1e-11, what);
  ASSERT_EQ(learned.weights().size(), serial.masked.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < serial.masked.size(); ++i)
    wrong += serial.masked[i] != (learned.weights()[i] == 0) && (serial.masked[i] || serial.learned.weights()[i] != 0);
  EXPECT_EQ(wrong, 0U) << what << ": the masks differ";
}
void expect_masks_as_serial(const Replica::Options& o) { expect_masks_as_serial(o, learn_sparsely(o, kSparseSteps)); }

class Sparsity : public ::testing::TestWithParam<SparsityKind> {};

TEST_P(Sparsity, TeachesAnyNumberOfRanksWhatTheSerialModelLearns) {
  const SparseLearned serial = learn_sparsely(sparse_options(tiny_specs()[0].spec, {}, GetParam()), kSparseSteps);
  for (int ranks = 1; ranks <= 8; ++ranks)
    expect_masks_as_serial(sparse_options(tiny_specs()[0].spec, sparse_layout(ranks), GetParam()), serial);
}

TEST_P(Sparsity, TeachesEveryFamilyWhatTheSerialModelLearns) {
  for (const NamedSpec& model : tiny_specs()) {
    if (model.spec.dropout > 0) continue;  // whose masks are of the batches that a replica has counted
    SCOPED_TRACE(model.name);
    expect_masks_as_serial(sparse_options(model.spec, sparse_layout(3), GetParam()));
  }
}

TEST_P(Sparsity, OfShardsTeachesWhatTheSerialModelLearns) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs()[6]}) {
    const SparseLearned serial = learn_sparsely(sparse_options(model.spec, {}, GetParam()), kSparseSteps);
    for (const std::int64_t zero : {1, 2, 3})
      for (const int ranks : {2, 3, 8})
        expect_masks_as_serial(sparse_options(model.spec, sparse_layout(ranks, zero), GetParam()), serial);
  }
}

TEST_P(Sparsity, OfSplitLayersTeachesWhatTheSerialModelLearns) {
  for (NamedSpec model : cut_specs()) {
    if (model.name != "llama_8_heads" && model.name != "gpt2_8_heads") continue;
    SCOPED_TRACE(model.name);
    model.spec.width = 32;
    model.spec.head_width = 4;
    const auto options = [&](const LayoutSpec& layout) {
      Replica::Options o = sparse_options(model.spec, layout, GetParam());
      o.spec.ffn_width = 48;  // 4 divides a quarter of it
      o.T = 12;               // which cp divides
      return o;
    };
    const SparseLearned serial = learn_sparsely(options({}), kSparseSteps);
    for (const LayoutSpec& layout :
         {LayoutSpec{.tp = 2}, LayoutSpec{.pp = 2, .micro = 4}, LayoutSpec{.cp = 2},
          LayoutSpec{.dp = 2, .tp = 2, .micro = 2, .zero = 1},
          LayoutSpec{.dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1}, LayoutSpec{.dp = 2, .tp = 4, .zero = 1},
          LayoutSpec{.dp = 3, .tp = 2, .zero = 3}}) {
      Replica::Options o = options(layout);
      o.layout.grad_sync = LayoutSpec::usual_sync(layout.zero);
      if (layout.tp > 1) o.layout.sp = Switch::on;
      expect_masks_as_serial(o, serial);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Sparsity, ::testing::Values(SparsityKind::unstructured, SparsityKind::two_of_four),
                         [](const auto& info) {
                           return info.param == SparsityKind::unstructured ? "unstructured" : "TwoOfFour";
                         });

// What is zero in the end: the wanted share of each matrix of a block, and nothing else.
TEST(SparsityShare, IsExactlyZero) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs()[6]})
    for (const SparsityKind kind : {SparsityKind::unstructured, SparsityKind::two_of_four}) {
      const Replica::Options o = sparse_options(model.spec, sparse_layout(3, 1), kind);
      const Learned learned = learn(o, kSparseSteps);
      auto name = learned.tensors.begin();
      for (const LogicalTensor& t : logical_tensors(Model(o.spec, 1, o.T, DType::f32))) {
        const Learned::Tensor at = *name++;
        const auto w = [&](std::int64_t i) { return learned.weights()[static_cast<std::size_t>(at.begin + i)]; };
        std::int64_t zeros = 0;
        for (std::int64_t i = 0; i < at.count; ++i) zeros += w(i) == 0;
        if (!is_block_matrix(t)) {
          EXPECT_EQ(zeros, 0) << t.name;
          continue;
        }
        const double share = kind == SparsityKind::unstructured ? 0.7 : 0.5;
        EXPECT_EQ(zeros, std::llround(share * static_cast<double>(at.count))) << t.name;
        if (kind != SparsityKind::two_of_four) continue;
        const std::int64_t inputs = t.shape[o.spec.in_out_weights ? 0 : 1], outputs = at.count / inputs;
        for (std::int64_t out = 0; out < outputs; ++out)
          for (std::int64_t in = 0; in < inputs; in += 4) {
            int stay = 0;
            for (std::int64_t i = in; i < in + 4; ++i)
              stay += w(o.spec.in_out_weights ? i * outputs + out : out * inputs + i) != 0;
            ASSERT_EQ(stay, 2) << t.name << ", output " << out << ", inputs from " << in;
          }
      }
    }
}

// By element of each matrix of a block, whether it stays.
std::vector<double> masks_of(HostRun& run) {
  std::vector<double> all;
  run.replica->open_state();
  for (const StateTensor& t : run.replica->state())
    if (t.part == MaskSteps::kMaskPart)
      for (const double bit : to_doubles(t.live, *run.stream)) all.push_back(bit);
  run.replica->close_state();
  return all;
}

// Weights that stay may become zero, and are not taken for masked ones.
TEST(SparsityMask, OnlyGrowsAlsoWhereWeightsThatStayAreZero) {
  for (const SparsityKind kind : {SparsityKind::unstructured, SparsityKind::two_of_four}) {
    HostRun run(sparse_options(tiny_specs()[0].spec, {}, kind));
    run.replica->init_weights();
    run.replica->grow_mask(6);
    const std::vector<double> before = masks_of(run);
    for (const auto& t : run.replica->tensors())
      if (is_block_matrix(t.tensor)) {
        const std::int64_t n = t.master.elements();
        std::fill_n(t.master.data<double>() + n / 4, n - n / 4, 0);  // masked ones at the beginning have lower indices
      }
    run.replica->grow_mask(14);
    const std::vector<double> after = masks_of(run);
    ASSERT_EQ(before.size(), after.size());
    std::size_t back = 0, gone = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      back += before[i] == 0 && after[i] != 0;
      gone += before[i] != 0 && after[i] == 0;
    }
    EXPECT_EQ(back, 0U) << name_of(kind);
    EXPECT_GT(gone, 0U) << name_of(kind);
  }
}

// Stages with one way of summing are equal bit for bit, in 16 bits too, where masters are packed as well as moments.
TEST(SparsityLayouts, ThatKeepTheOrderOfSumsKeepTheBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Replica::Options o = sparse_options(tiny_specs()[0].spec, sparse_layout(3), SparsityKind::unstructured);
    o.precision = precision;
    o.layout.grad_sync = GradSync::micro;
    const Learned one = learn(o, kSparseSteps);
    for (const std::int64_t zero : {1, 2, 3}) {
      o.layout.zero = zero;
      expect_equal(learn(o, kSparseSteps), one, fmt::format("zero={}, {}", zero, name_of(precision)));
    }
  }
}

// Bytes by tag and unit after each mask step, on a rank of the real run and of one on meta.
struct Bytes {
  std::vector<std::int64_t> optimizer, all, evenly;
  std::int64_t peak = 0;
};

Bytes bytes_of(Replica& replica, const Ledger& ledger, const SparsitySpec& sparsity) {
  Bytes bytes;
  for (std::int64_t step = sparsity.begin + sparsity.every; step <= sparsity.end; step += sparsity.every) {
    const Relayout done = replica.grow_mask(step);
    if (bytes.optimizer.empty()) bytes.optimizer.push_back(done.before);
    EXPECT_EQ(done.before, bytes.optimizer.back());
    EXPECT_EQ(done.after, ledger.current(Tag::optimizer));
    bytes.optimizer.push_back(done.after);
    bytes.evenly.push_back(done.evenly);
    bytes.all.push_back(ledger.current());
  }
  bytes.peak = ledger.peak();
  return bytes;
}

void compare_with_meta(const Replica::Options& o, bool exact_steps, bool exact_end) {
  const std::string what = fmt::format("{}, {}", to_text(o.layout), name_of(o.sparsity.kind));
  std::vector<Bytes> real(static_cast<std::size_t>(o.layout.ranks()));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    Ledger ledger;
    const std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
    const std::unique_ptr<Stream> stream = make_stream(*memory, 1, Device::cpu);
    Replica replica(o, {*group, *group}, *memory, *stream);
    replica.init_weights();
    real[static_cast<std::size_t>(group->rank())] = bytes_of(replica, ledger, o.sparsity);
  });
  for (std::size_t r = 0; r < real.size(); ++r) {
    Ledger ledger;
    const std::unique_ptr<Memory> memory = make_memory(Device::meta, ledger);
    const std::unique_ptr<Stream> stream = make_stream(*memory, 1, Device::cpu);
    meta::Communicator ranks(static_cast<int>(r), static_cast<int>(real.size()), "world");
    Replica replica(o, {ranks, ranks}, *memory, *stream);
    replica.init_weights();
    const Bytes said = bytes_of(replica, ledger, o.sparsity);
    EXPECT_EQ(real[r].optimizer.front(), said.optimizer.front()) << what;
    EXPECT_LT(real[r].optimizer.back(), real[r].optimizer.front()) << what;
    for (std::size_t i = 0; i < said.optimizer.size(); ++i)
      if (exact_steps || (exact_end && i + 1 == said.optimizer.size()))
        EXPECT_EQ(real[r].optimizer[i], said.optimizer[i]) << what << ", mask " << i;
      else
        EXPECT_LE(real[r].optimizer[i], said.optimizer[i]) << what << ", mask " << i;
    // Where it depends on the weights which rank has what stays, nearly as much as if it were spread evenly.
    for (std::size_t i = 0; i < said.evenly.size(); ++i) {
      const auto found = static_cast<double>(real[r].optimizer[i + 1]);
      EXPECT_NEAR(static_cast<double>(said.evenly[i]), found, exact_steps ? 0 : 0.1 * found) << what << ", mask " << i;
    }
    if (exact_steps) {
      EXPECT_EQ(real[r].all, said.all) << what;
      EXPECT_EQ(real[r].peak, said.peak) << what;
    } else {
      EXPECT_LE(real[r].peak, said.peak) << what;
    }
  }
}

TEST(SparsityBytes, AreWhatMetaSays) {
  ModelSpec spec = cut_specs()[8].spec;  // llama with 8 heads
  spec.ffn_width = 48;
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const SparsityKind kind : {SparsityKind::unstructured, SparsityKind::two_of_four})
      for (const LayoutSpec& layout :
           {LayoutSpec{}, LayoutSpec{.dp = 3}, LayoutSpec{.pp = 2, .micro = 2}, LayoutSpec{.dp = 2, .zero = 1},
            LayoutSpec{.dp = 3, .zero = 3}, LayoutSpec{.tp = 2}, LayoutSpec{.dp = 2, .tp = 2, .zero = 2}}) {
        Replica::Options o = learning_options(spec, layout, precision);
        o.sparsity = growing(kind);
        o.layout.grad_sync = LayoutSpec::usual_sync(layout.zero);
        const bool whole = layout.zero == 0 && layout.tp == 1;
        compare_with_meta(o, whole, kind == SparsityKind::two_of_four);
      }
}

// Counted by hand: moments of what stays, in elements, and a bit for each element of the blocks' units.
TEST(SparsityBytes, AreMomentsOfWhatStaysAndABitForEachElement) {
  Replica::Options o = sparse_options(tiny_specs()[0].spec, {}, SparsityKind::unstructured);
  o.precision = Precision::bf16;
  HostRun run(o);
  run.replica->init_weights();
  const Model& model = run.replica->model();
  std::int64_t want = 0;
  const auto room = [](std::int64_t bytes) { return (bytes + 255) / 256 * 256; };  // that the memory takes for it
  for (int u = 0; u < model.units(); ++u) {
    const UnitLayout& layout = model.unit(u).layout();
    if (u == 0 || u + 1 == model.units()) {
      want += 3 * room(4 * layout.owned());
      continue;
    }
    std::int64_t kept = 0;
    for (const StoredParameter& parameter : layout.parameters())
      for (const ParameterPiece& piece : parameter.pieces)
        kept += piece.elements() -
                (piece.shape.size() == 2 ? std::llround(0.7 * static_cast<double>(piece.elements())) : 0);
    want += 3 * room(4 * kept) + room(layout.owned() / 8);
  }
  run.replica->grow_mask(14);
  EXPECT_EQ(run.ledger.current(Tag::optimizer), want);
}

}  // namespace
}  // namespace lockstep::tests
