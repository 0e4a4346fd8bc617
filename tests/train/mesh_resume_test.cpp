// What any layout saved, any other goes on from, over all axes: a hundred ordered pairs.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>

#include "checkpoint/checkpoint_folder.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kSampleLength = 24;
constexpr int kPairs = 100;

RunSpec mesh_run(const ModelSpec& model, const LayoutSpec& layout) {
  RunSpec run = resumed_run(model, layout);
  run.data.seq = kSampleLength;
  run.train.global_batch = 12;
  run.precision.compute = Precision::fp64;
  return run;
}

// Meshes of up to 12 ranks, with what else there is to choose in turn.
std::vector<LayoutSpec> layouts_of(const ModelSpec& model) {
  std::vector<LayoutSpec> all;
  int turn = 0;
  for (const std::int64_t dp : {1, 2, 3})
    for (const std::int64_t pp : {1, 2, 3})
      for (const std::int64_t cp : {1, 2, 3, 4})
        for (const std::int64_t tp : {1, 2, 4}) {
          if (dp * pp * cp * tp > 12) continue;
          LayoutSpec l{.dp = dp, .pp = pp, .cp = cp, .tp = tp};
          ++turn;
          l.zero = turn % 4;
          l.grad_sync = LayoutSpec::usual_sync(l.zero);
          l.micro = pp > 1 || turn % 3 == 0 ? 2 : 1;
          if (pp > 1) l.schedule = kScheduleKinds[static_cast<std::size_t>(turn) % kScheduleKinds.size()];
          l.chunks = usual_chunks(l.schedule);
          if (cp > 1)
            l.cp_kind = turn % 3 == 1 ? kUlysses : cp == 4 && turn % 3 == 2 ? CpKind::of_factors(2, 2) : kRing;
          if (cp > 1 && l.cp_kind == kRing && turn % 2 == 0) l.cp_order = CpOrder::plain;
          l.sp = tp > 1 && turn % 4 != 0 ? Switch::on : Switch::off;
          bool fits = true;
          const LayoutFault fail = [&](std::string_view, const std::string&, const std::string&) { fits = false; };
          check_layout(12, l, fail);
          check_model_layout(model, kSampleLength, l, fail);
          if (fits) all.push_back(l);
        }
  return all;
}

// What is another place or time, and no other order of sums.
LayoutSpec order_of_sums(LayoutSpec l) {
  l.pp = 1;
  l.schedule = ScheduleKind::one_f_one_b;
  l.chunks = 1;
  l.zero = 0;
  return l;
}

std::map<std::string, std::string> files_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

std::map<std::string, std::string> exported(const std::filesystem::path& checkpoint) {
  const TemporaryFolder out;
  const auto folder = out.path() / "hf";
  const Outcome o = run_in_shell("export " + checkpoint.string() + " --out " + folder.string() + " 2>&1");
  EXPECT_EQ(o.code, 0) << o.out;
  return files_in(folder);
}

TEST(MeshResume, AnyLayoutGoesOnFromAnyOther) {
  std::mt19937 random(9);
  // Grouped heads untied, tied with scaled RoPE, and GPT-2's fused projections.
  std::vector<NamedSpec> models = {cut_specs()[8], cut_specs()[9], cut_specs()[14]};
  struct Stayed {
    std::unique_ptr<TemporaryFolder> folder;
    TrainedState end;
  };
  std::map<std::pair<std::size_t, std::string>, Stayed> saved;
  std::set<std::string> seen;
  int axes = 0, pairs = 0;
  while (pairs < kPairs) {
    const std::size_t m = random() % models.size();
    models[m].spec.layers = 5;
    const std::vector<LayoutSpec> layouts = layouts_of(models[m].spec);
    const LayoutSpec from = layouts[random() % layouts.size()], to = layouts[random() % layouts.size()];
    const std::string what = models[m].name + ": " + to_text(from) + " to " + to_text(to);
    if (!seen.insert(what).second) continue;
    ++pairs;
    axes += (from.cp != to.cp) + (from.pp != to.pp) + (from.tp != to.tp) + (from.dp != to.dp);
    Stayed& stayed = saved[{m, to_text(from)}];
    if (!stayed.folder) {
      stayed.folder = std::make_unique<TemporaryFolder>();
      stayed.end = train_all(mesh_run(models[m].spec, from), stayed.folder->path());
    }
    const std::filesystem::path checkpoint = stayed.folder->path() / step_folder_name(kSavedStep);
    const TemporaryFolder unused;
    const TrainedState went_on = train_all(mesh_run(models[m].spec, to), unused.path(), checkpoint);
    const bool same_bits = order_of_sums(from) == order_of_sums(to);
    EXPECT_TRUE(!same_bits || went_on == stayed.end) << what;
    EXPECT_LE(distance(stayed.end, went_on), 1e-10) << what;
    if (pairs % 10 != 0) continue;
    // What was read and is saved again at once is the same model.
    const TemporaryFolder again;
    RunSpec run = mesh_run(models[m].spec, to);
    run.train.steps = kSavedStep;
    resave(run, again.path(), checkpoint);
    EXPECT_EQ(exported(again.path() / step_folder_name(kSavedStep)), exported(checkpoint)) << what;
  }
  EXPECT_GT(axes, kPairs) << "more than one axis differs, on the whole";
}

TEST(MeshResume, KeepsEveryBitWhereSumsAgree) {
  const ModelSpec model = [] {
    ModelSpec spec = cut_specs()[8].spec;
    spec.layers = 5;
    return spec;
  }();
  const LayoutSpec from{.cp = 2, .tp = 2, .micro = 2};
  const TemporaryFolder folder;
  const TrainedState stayed = train_all(mesh_run(model, from), folder.path());
  LayoutSpec staged = from, cut = from, kept = from;
  staged.pp = 3;
  staged.schedule = ScheduleKind::zb_h1;
  cut.zero = 3;
  cut.grad_sync = GradSync::step;
  kept.overlap = Switch::off;
  for (const LayoutSpec& to : {from, staged, cut, kept}) {
    const TemporaryFolder unused;
    EXPECT_TRUE(train_all(mesh_run(model, to), unused.path(), folder.path() / step_folder_name(kSavedStep)) == stayed)
        << to_text(to);
  }
}

}  // namespace
}  // namespace lockstep::tests
