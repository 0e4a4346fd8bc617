// Residuals belong to workers; what a checkpoint keeps is their sum, which any layout deals to its own workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "checkpoint/checkpoint_folder.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/program.h"
#include "support/serial_compression.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

const char* const kCarriedForms[] = {"topk:0.05", "bf16", "int8", "onebit"};

// Every tensor's residual, whole, by name.
using Owed = std::map<std::string, std::vector<double>>;

// Adds a rank's pieces to those of others.
void collect(Owed& owed, std::mutex& mutex, const std::vector<StateTensor>& pieces, Stream& stream) {
  for (const StateTensor& piece : pieces) {
    const std::vector<double> values = to_doubles(piece.live, stream);
    const std::lock_guard lock(mutex);
    std::vector<double>& whole = owed[piece.tensor.name];
    whole.resize(static_cast<std::size_t>(piece.tensor.elements()), NAN);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double& at = whole[static_cast<std::size_t>(piece.range.at(static_cast<std::int64_t>(i)))];
      EXPECT_TRUE(std::isnan(at)) << piece.tensor.name << ": two ranks answer for one element";
      at = values[i];
    }
  }
}

double norm_of(const Owed& owed) {
  double sum = 0;
  for (const auto& [name, values] : owed)
    for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

double distance_of(const Owed& a, const Owed& b) {
  double sum = 0;
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i) sum += std::pow(values[i] - b.at(name).at(i), 2);
  return std::sqrt(sum);
}

TEST(Residuals, AddUpToWhatTheSerialModelHasLeftOut) {
  for (const char* form : kCarriedForms)
    for (const std::int64_t zero : {0, 1, 2})
      for (const int ranks : {2, 3, 5}) {
        LayoutSpec layout{.dp = ranks, .micro = 2, .zero = zero, .uneven = Switch::on};
        layout.grad_sync = LayoutSpec::usual_sync(zero);
        Replica::Options o = learning_options(tiny_specs()[0].spec, layout, Precision::fp64);
        o.sync.compress = Compression::parse(form).value();
        constexpr int kSteps = 3;
        std::vector<double> serial;
        const Learned learned = learn_serially(o, kSteps, &serial);
        Owed owed, want;
        std::mutex mutex;
        run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
          CpuDevice cpu;
          Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
          replica.init_weights();
          for (unsigned step = 0; step < kSteps; ++step) {
            const TokenBatch all = random_batch(o, step);
            const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
              return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                              static_cast<std::size_t>(given.count * o.T));
            };
            replica.step(part(all.tokens), part(all.targets));
          }
          replica.settle();
          replica.sum_owed();
          collect(owed, mutex, replica.owed(true), cpu.stream());
        });
        for (const Learned::Tensor& t : learned.tensors)
          want[t.name] = std::vector<double>(serial.begin() + t.begin, serial.begin() + t.begin + t.count);
        EXPECT_EQ(owed.size(), want.size()) << form;
        EXPECT_GT(norm_of(want), 0) << form;
        // What is left out of a gradient has the gradient's rounding.
        EXPECT_LE(distance_of(want, owed), 1e-11 * learned.norms.back()) << form << ", " << to_text(layout);
      }
}

RunSpec compressed_run(const LayoutSpec& layout, const std::string& form) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 2, .global_batch = 30, .save_every = 2, .keep = 100, .seed = 4};
  spec.optimizer.learning_rate = 1e-2;
  spec.precision = Precision::fp64;
  spec.layout = layout;
  spec.run.threads = 1;
  if (!form.empty()) spec.sync.compress = Compression::parse(form).value();
  return spec;
}

// What the ranks of a run owe when it has resumed, or when it has been trained to the end.
Owed owed_of(const RunSpec& spec, const std::filesystem::path& folder, const std::filesystem::path& from,
             std::vector<std::string>* notes = nullptr) {
  Owed owed;
  std::mutex mutex;
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group.get()});
    Progress progress = beginning(run);
    if (from.empty()) {
      run.init_weights();
      Watcher nobody;
      train(run, progress, nobody);
    } else {
      progress = resume(run, open_checkpoint(from), [&](const std::string& note) {
        const std::lock_guard lock(mutex);
        if (notes && group->rank() == 0) notes->push_back(note);
      });
    }
    run.replica().sum_owed();
    collect(owed, mutex, run.replica().owed(true), run.stream());
  });
  return owed;
}

TEST(Residuals, AreDealtAnewInEveryOtherLayout) {
  const LayoutSpec layouts[] = {{.dp = 3, .micro = 2},
                                {.dp = 2},
                                {.dp = 5, .bucket = 0},
                                {.dp = 5, .zero = 1},
                                {.dp = 3, .micro = 2, .zero = 3, .grad_sync = GradSync::micro},
                                {.dp = 2, .tp = 3, .micro = 3},
                                {.dp = 2, .pp = 2, .tp = 3, .zero = 1},
                                {.dp = 2, .pp = 2, .micro = 3}};
  const TemporaryFolder folder;
  for (const char* form : {"topk:0.05", "int8"})
    for (const LayoutSpec& layout : layouts) {
      const std::filesystem::path saved = folder.path() / form / to_text(layout);
      const Owed before = owed_of(compressed_run(layout, form), saved, {});
      ASSERT_GT(norm_of(before), 0);
      for (const LayoutSpec& other : layouts) {
        const Owed after = owed_of(compressed_run(other, form), folder.path() / "unused", saved / step_folder_name(2));
        EXPECT_LE(distance_of(before, after), 1e-14 * norm_of(before))
            << form << ": from " << to_text(layout) << " to " << to_text(other);
      }
    }
}

TEST(Residuals, BeginAtZeroOrAreDroppedWhereCompressionIsSwitched) {
  const TemporaryFolder folder;
  const LayoutSpec layout{.dp = 3};
  owed_of(compressed_run(layout, ""), folder.path() / "plain", {});
  owed_of(compressed_run(layout, "int8"), folder.path() / "int8", {});
  std::vector<std::string> notes;
  const Owed begun = owed_of(compressed_run(layout, "topk:0.05"), folder.path() / "unused",
                             folder.path() / "plain" / step_folder_name(2), &notes);
  EXPECT_EQ(norm_of(begun), 0);
  EXPECT_FALSE(begun.empty());
  EXPECT_THAT(notes, ::testing::Contains(::testing::HasSubstr("sync.compress changes from \"none\" to \"topk:0.05\"")));
  notes.clear();
  const Owed dropped = owed_of(compressed_run(layout, ""), folder.path() / "unused",
                               folder.path() / "int8" / step_folder_name(2), &notes);
  EXPECT_TRUE(dropped.empty());
  EXPECT_THAT(notes, ::testing::Contains("what compression had left out of the gradients is dropped"));
}

// A bad value of one rank reaches all of them, whatever is sent: the step updates nothing. What is left over of it is
// finite, and training continues.
TEST(Residuals, OfAStepWithABadValueAreFinite) {
  for (const char* form : kCarriedForms) {
    Replica::Options o = learning_options(tiny_specs()[0].spec, {.dp = 3}, Precision::fp32);
    o.sync.compress = Compression::parse(form).value();
    run_ranks(3, [&](std::unique_ptr<Communicator> group) {
      CpuDevice cpu;
      Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
      replica.init_weights();
      const TokenBatch all = random_batch(o, 1);
      const auto step = [&] {
        const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
          return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                          static_cast<std::size_t>(given.count * o.T));
        };
        return replica.step(part(all.tokens), part(all.targets));
      };
      EXPECT_TRUE(step().updated);
      float* const weight = replica.tensors()[1].master.data<float>();
      const float was = *weight;
      if (group->rank() == 1) *weight = std::numeric_limits<float>::quiet_NaN();
      const Replica::Result bad = step();
      EXPECT_FALSE(bad.updated) << form << ", rank " << group->rank();
      EXPECT_FALSE(std::isfinite(bad.norm)) << form << ", rank " << group->rank();
      *weight = was;
      EXPECT_TRUE(step().updated) << form << ", rank " << group->rank();
      replica.sum_owed();
      for (const StateTensor& owed : replica.owed())
        for (const double v : to_doubles(owed.live, cpu.stream())) ASSERT_TRUE(std::isfinite(v)) << form;
    });
  }
}

}  // namespace
}  // namespace lockstep::tests
