#include "bench/machine_step.h"

#include "base/quartile.h"
#include "bench/timed_steps.h"
#include "plan/machine_refinement.h"
#include "plan/plan.h"
#include "plan/timed_tensors.h"

namespace lockstep {

namespace {

constexpr double kEnoughSeconds = 1;  // of steps
constexpr std::size_t kLeastSteps = 5;

}  // namespace

RunSpec step_run(Device device, Precision precision, const BenchSizes& sizes) {
  const BenchSizes::Step& step = sizes.step;
  RunSpec run = bench_run_in(device, precision);
  run.model = family_defaults(Family::llama);
  run.model.vocabulary = step.vocabulary;
  run.model.layers = step.layers;
  run.model.width = step.width;
  run.model.head_width = step.head_width;
  run.model.heads = run.model.kv_heads = step.width / step.head_width;
  run.model.ffn_width = step.ffn;
  run.model.max_positions = step.tokens;
  run.data.synthetic = SyntheticSpec{.vocabulary = step.vocabulary, .order = 1};
  run.data.eval_share = 0;
  run.data.seq = step.tokens;
  run.train.global_batch = step.samples;
  run.train.save_last = false;
  return run;
}

double measure_step(const RunSpec& run, const std::function<void()>& together) {
  TrainingRun training(run, device_of(run), "");
  training.init_weights();
  TimedSteps steps(training);
  Stream& stream = training.stream();
  const bool ahead = stream.runs_ahead();
  const int each = ahead ? 4 : 1;
  const auto seconds = [&] {
    if (ahead) return seconds_of([&] { steps.take(each); }, stream) / each;
    const double begin = computed_seconds();
    steps.take(each);
    return computed_seconds() - begin;
  };
  for (int warm = 0; warm < 2; ++warm) seconds();  // memory is touched and code is loaded
  together();
  std::vector<double> times;
  for (double spent = 0; times.size() < kLeastSteps || spent < kEnoughSeconds; spent += times.back() * each)
    times.push_back(seconds());
  return lower_quartile(std::move(times));
}

MachineSpec held_to_step(const MachineSpec& machine, const RunSpec& run, double seconds) {
  const RunData data(run);
  const std::vector<Plan> stages = plan_stages(run, data);
  const auto predict = [&](const MachineSpec& of) { return predict_step(run, of, data, stages); };
  return refine_machine(machine, {{.name = "step", .step_seconds = seconds, .predict = predict}}).machine;
}

}  // namespace lockstep
