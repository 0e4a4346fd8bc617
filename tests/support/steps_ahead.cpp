#include "support/steps_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/token_file_writer.h"
#include "support/program.h"
#include "support/recipes.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/resume.h"

namespace lockstep::tests {

namespace {

constexpr std::int64_t kSeq = 8, kWindows = 40, kOdd = 14;  // the sample that has token 0, which no other has

RunSpec spec_of(const AheadOptions& options, const std::string& tokens) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.model.dropout = options.dropout;
  spec.data.tokens = tokens;
  spec.data.seq = kSeq;
  spec.data.eval_share = 0.1;
  spec.train = {.steps = 12,
                .global_batch = 3,
                .eval_every = 3,
                .eval_batches = 1,
                .save_every = 4,
                .keep = 100,
                .seed = 8,
                .bad_values = options.bad_values.value_or(BadValues::stop)};
  spec.optimizer.weight_decay = 0;
  spec.optimizer.learning_rate = 1e-2;
  spec.schedule.warmup = 3;
  spec.precision = options.precision;
  spec.run.device = options.device;
  spec.run.threads = 1;
  return spec;
}

// Token 0 has an embedding that overflows wherever dropout keeps it.
void spoil(TrainingRun& run) {
  for (const auto& t : run.replica().tensors())
    if (t.tensor.name == "model.embed_tokens.weight") {
      const std::vector<float> row(static_cast<std::size_t>(run.spec().model.width), 3e38f);
      upload(t.master.slice(0, 0, std::ssize(row)), row.data(), run.stream());
    }
  run.replica().resume(0, 0);  // the weights that compute
}

struct Watching final : Watcher {
  explicit Watching(AheadRun& run, std::int64_t stop_after) : run(run), stop_after(stop_after) {}
  void stepped(const StepRecord& r) override {
    run.records.push_back(
        fmt::format("step {}: {} {} {} {}", r.step, r.loss, r.grad_norm, r.lr, r.updated ? "" : "not updated"));
    if (!r.updated && run.bad_step == 0) run.bad_step = r.step;
    if (r.loss_scale) run.loss_scales.push_back(*r.loss_scale);
    if (r.overflow) run.overflows.push_back(r.step);
    ++seen;
  }
  void evaluated(const EvalRecord& r) override {
    run.records.push_back(fmt::format("evaluation {}: {}", r.step, r.loss));
  }
  void saving(std::int64_t step) override { run.saved.push_back(step); }
  void note(const std::string& line) override { run.notes.push_back(line); }
  void ended_by(const std::string& reason) override { run.notes.push_back(reason); }
  bool wants_stop() override { return seen == stop_after; }
  AheadRun& run;
  std::int64_t stop_after, seen = 0;
};

}  // namespace

AheadRun run_ahead(const AheadOptions& options) {
  TemporaryFolder folder;
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < kWindows * kSeq + 1; ++i)
    tokens.push_back(i == kOdd * kSeq + 3 ? 0 : 1 + static_cast<std::int32_t>(uniform_number(2, i) * 36));
  TokenFileWriter writer(folder / "some.tokens", 37);
  writer.add(tokens);
  writer.finish();

  const RunSpec spec = spec_of(options, folder / "some.tokens");
  AheadRun result;
  TrainingRun run(spec, device_of(spec), folder.path() / "checkpoints", {.steps_at_once = options.steps_at_once});
  run.init_weights();
  if (options.bad_values) spoil(run);
  result.progress = beginning(run);
  Watching watcher(result, options.stop_after);
  result.ending = train(run, result.progress, watcher);
  for (const auto& t : run.replica().tensors()) result.weights.push_back(to_doubles(t.master, run.stream()));
  return result;
}

std::vector<std::string> steps_of(const AheadRun& run, std::int64_t steps) {
  std::vector<std::string> some;
  for (const std::string& record : run.records)
    if (record.starts_with("step ") && std::ssize(some) < steps) some.push_back(record);
  return some;
}

}  // namespace lockstep::tests
