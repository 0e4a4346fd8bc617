// A run under a growing mask is saved whole, with its mask, and continues in any layout.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "comm/threads/run_ranks.h"
#include "support/host_run.h"
#include "support/program.h"
#include "support/serial_sparsity.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kSparseEnd = 13;

RunSpec sparse_run(const LayoutSpec& layout, SparsityKind kind, Precision precision = Precision::fp64) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.model.heads = 8;
  spec.model.kv_heads = 2;
  spec.model.ffn_width = 32;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = kSparseEnd, .global_batch = 12, .save_every = 2, .keep = 100, .seed = 4};
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.clip = 0.05;
  spec.precision = precision;
  spec.layout = layout;
  spec.layout.grad_sync = LayoutSpec::usual_sync(layout.zero);
  spec.sparsity = {.kind = kind, .share = 0.6, .begin = 0, .end = 9, .every = 3};  // masks before steps 3, 6 and 9
  spec.run.threads = 1;
  return spec;
}

// By part and name, whole.
using State = std::map<std::string, std::vector<double>>;

// All of the state in the end, or as a run that resumes begins with it.
State state_of_run(const RunSpec& spec, const std::filesystem::path& folder, const std::filesystem::path& from = {},
                   bool trains = true) {
  State state;
  std::mutex mutex;
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group.get()});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    Watcher nobody;
    if (trains) train(run, progress, nobody);
    run.replica().open_state();
    for (const StateTensor& piece : run.replica().state(true)) {
      const std::vector<double> values = to_doubles(piece.live, run.stream());
      const std::lock_guard lock(mutex);
      std::vector<double>& whole = state[piece.part + "/" + piece.tensor.name];
      whole.resize(static_cast<std::size_t>(piece.tensor.elements()), NAN);
      for (std::int64_t row = 0; row < piece.range.rows; ++row)
        for (std::int64_t i = 0; i < piece.range.row; ++i)
          whole[static_cast<std::size_t>(piece.range.begin + row * piece.range.pitch + i)] =
              values[static_cast<std::size_t>(row * piece.range.row + i)];
    }
    run.replica().close_state();
  });
  return state;
}

void expect_same(const State& a, const State& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, values] : a) {
    double distance = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_FALSE(std::isnan(values[i])) << name;
      distance += std::pow(values[i] - b.at(name).at(i), 2);
      norm += values[i] * values[i];
    }
    const double most = name.starts_with("mask/") ? 0 : tolerance;
    EXPECT_LE(std::sqrt(distance), most * std::sqrt(norm)) << what << ": " << name;
  }
}

std::int64_t zeros_in(const State& state, const std::string& part) {
  std::int64_t zeros = 0;
  for (const auto& [name, values] : state)
    if (name.starts_with(part + "/") && state.contains("mask" + name.substr(part.size())))
      zeros += std::ranges::count(values, 0.0);
  return zeros;
}

const LayoutSpec kSparseLayouts[] = {{},
                                     {.dp = 3, .micro = 2},
                                     {.dp = 3, .zero = 1},
                                     {.dp = 2, .zero = 3},
                                     {.tp = 2},
                                     {.dp = 2, .pp = 2, .micro = 2},
                                     {.dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1}};

class SparsityResume : public ::testing::TestWithParam<SparsityKind> {};

// Saved between two masks, and at a step before which the mask is still to grow.
TEST_P(SparsityResume, KeepsMasksAndTheTrajectoryInEveryOtherLayout) {
  const TemporaryFolder folder;
  for (const LayoutSpec& layout : kSparseLayouts) {
    const std::filesystem::path saved = folder.path() / to_text(layout);
    const RunSpec spec = sparse_run(layout, GetParam());
    const State whole = state_of_run(spec, saved);
    EXPECT_GT(zeros_in(whole, "mask"), 0);
    EXPECT_EQ(zeros_in(whole, "weight"), zeros_in(whole, "mask"));
    EXPECT_EQ(zeros_in(whole, "v"), zeros_in(whole, "mask"));
    for (const LayoutSpec& other : kSparseLayouts)
      for (const std::int64_t step : {2, 6, 8, 12}) {
        if ((step == 2 || step == 12) && layout.ranks() + other.ranks() > 4) continue;
        if ((step == 6) == ((layout.ranks() + other.ranks()) % 2 == 0) && step != 12 && layout.ranks() > 1) continue;
        const std::string what = fmt::format("{} to {} at step {}", to_text(layout), to_text(other), step);
        const State resumed = state_of_run(sparse_run(other, GetParam()), folder.path() / "unused" / what,
                                           saved / step_folder_name(step));
        expect_same(whole, resumed, 1e-9, what);
        const bool same = to_text(other) == to_text(layout);
        EXPECT_TRUE(!same || whole == resumed) << what << ": bits";
      }
  }
}

// Masters are packed too: the checkpoint has them whole.
TEST_P(SparsityResume, OfSixteenBitsKeepsTheBits) {
  const TemporaryFolder folder;
  const RunSpec spec = sparse_run({.dp = 3, .zero = 1}, GetParam(), Precision::bf16);
  const State whole = state_of_run(spec, folder.path() / "whole");
  RunSpec slow = spec;
  slow.train.async_save = false;
  EXPECT_TRUE(state_of_run(slow, folder.path() / "slow") == whole);
  for (const char* saved : {"whole", "slow"})
    for (const std::int64_t step : {6, 8, 12}) {
      const std::filesystem::path from = folder.path() / saved / step_folder_name(step);
      EXPECT_TRUE(state_of_run(spec, folder.path() / "again" / saved / std::to_string(step), from) == whole)
          << saved << ", step " << step;
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SparsityResume,
                         ::testing::Values(SparsityKind::unstructured, SparsityKind::two_of_four),
                         [](const auto& info) {
                           return info.param == SparsityKind::unstructured ? "unstructured" : "TwoOfFour";
                         });

TEST(SparsityResumeRefusals, NameTheKeyThatDiffers) {
  const TemporaryFolder folder;
  const RunSpec spec = sparse_run({}, SparsityKind::unstructured);
  state_of_run(spec, folder.path() / "saved");
  RunSpec other = spec;
  other.sparsity.share = 0.5;
  try {
    state_of_run(other, folder.path() / "unused", folder.path() / "saved" / step_folder_name(8));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("sparsity.share was 0.6 in the checkpoint's run and is 0.5 now"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep::tests
