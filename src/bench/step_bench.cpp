#include "bench/step_bench.h"

#include <map>

#include "base/median.h"
#include "bench/kernel_benches.h"
#include "bench/timed_steps.h"
#include "bench/weight_products.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cuda/ceilings.h"
#include "kernels/matmul.h"
#include "parallel/zero_shards.h"
#include "plan/plan.h"
#include "plan/timed_tensors.h"
#include "spec/model/model_flops.h"
#include "tensor/meta/stream.h"
#include "train/training_run.h"
#include "train/tuning.h"

namespace lockstep {

namespace {

struct Ceilings {
  double flops, bytes;
};

// Of a GPU: a product that fills it, and the driver's own copy.
Ceilings gpu_ceilings(const RunSpec& spec) {
  constexpr std::int64_t kSize = 8192;
  TimedTensors desk(spec, TimedTensors::Kind::real);
  const MatmulArgs product{.c = desk.tensor({kSize, kSize}),
                           .a = desk.tensor({kSize, kSize}),
                           .b = desk.tensor({kSize, kSize}),
                           .transpose_b = true};
  const double seconds = seconds_of_one([&] { matmul(product, desk.stream()); }, desk.stream());
  return {2.0 * kSize * kSize * kSize / seconds, cuda::copy_bandwidth(desk.memory(), desk.stream())};
}

Ceilings ceilings_of(const RunSpec& spec) {
  if (device_of(spec) == Device::cuda) return gpu_ceilings(spec);
  return {cpu::fma_peak(storage_types(spec.precision).compute, threads_of(spec)),
          cpu::copy_bandwidth(threads_of(spec))};
}

double bytes_of(const meta::Work& work) { return static_cast<double>(work.bytes_read + work.bytes_written); }

double time_of(const KernelBench& bench, const RunSpec& spec) {
  TimedTensors desk(spec, TimedTensors::Kind::real);
  return seconds_of_one(bench.make(desk), desk.stream());
}

BenchItem item_of(const KernelBench& bench, double seconds, const RunSpec& spec, const Ceilings& ceilings) {
  TimedTensors desk(spec, TimedTensors::Kind::counting);
  const auto counted = bench.make(desk);
  meta::Work& work = meta::Stream::of(desk.stream()).work();
  work = {};
  counted();
  if (work.matmul_flops > 0)
    return {bench.name, static_cast<double>(work.flops) / seconds / 1e9, "GFLOP/s", ceilings.flops / 1e9};
  return {bench.name, bytes_of(work) / seconds / 1e9, "GB/s", ceilings.bytes / 1e9};
}

// The times of both in every round that counts, of one step and of its products.
struct Rounds {
  std::vector<double> steps, products;
};

Rounds alternate(TrainingRun& run, WeightProducts& products, Stream& beside, int rounds) {
  const bool ahead = run.stream().runs_ahead();
  const int steps_a_round = ahead ? 4 : 1, warm_up = ahead ? 2 : 1;  // the first touch the memory and load code
  TimedSteps steps(run);
  Rounds all;
  for (int round = -warm_up; round < rounds; ++round) {
    const double step = seconds_of([&] { steps.take(steps_a_round); }, run.stream()) / steps_a_round;
    const double product = seconds_of([&] { products.run(); }, beside);
    if (round < 0) continue;
    all.steps.push_back(step);
    all.products.push_back(product);
  }
  return all;
}

// Bytes of a step that neither products nor attention move, when nothing is computed twice.
double bytes_beside_products(RunSpec spec) {
  spec.memory = {};
  const meta::Work work = plan_run(spec).executed;
  return bytes_of(work) - static_cast<double>(work.matmul_bytes);
}

}  // namespace

Bench run_bench(const RunSpec& asked, int rounds) {
  RunSpec spec = asked;
  if (spec.layout.ranks() > 1)
    throw UserError(
        ExitCode::usage,
        fmt::format("bench times one rank, and the layout has {} ({})", spec.layout.ranks(), to_text(spec.layout)),
        "leave dp, pp, cp and tp out; `lockstep compare` times ranks");
  spec.train.save_last = false;  // nothing is saved
  spec.train.save_every = 0;
  const Ceilings ceilings = ceilings_of(spec);
  const bool gpu = device_of(spec) == Device::cuda;
  Bench bench;
  std::vector<BenchItem>& items = bench.items;
  items = {{gpu ? "gemm_peak" : "fma_peak", ceilings.flops / 1e9, "GFLOP/s", 0},
           {"copy_bandwidth", ceilings.bytes / 1e9, "GB/s", 0}};
  std::map<std::string, double> seconds;
  {
    const Model model(spec.model, spec.train.global_batch / spec.layout.micro, spec.data.seq,
                      storage_types(spec.precision).compute);
    for (const KernelBench& kernel : kernel_benches(spec, model)) {
      seconds[kernel.name] = time_of(kernel, spec);
      items.push_back(item_of(kernel, seconds[kernel.name], spec, ceilings));
    }
  }

  TrainingRun run(spec, device_of(spec), "");
  run.init_weights();
  TimedTensors desk(spec, TimedTensors::Kind::real);
  WeightProducts products(spec, run.replica().model(), desk);
  const Rounds times = alternate(run, products, desk.stream(), rounds);

  // A step and the products timed right after it meet the same noise: the ratio is the median of their ratios, and the
  // ceiling is the step's median rate over that.
  const double work = model_flops(spec.model, spec.train.global_batch, run.data().sample_work());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < times.steps.size(); ++i)
    ratios.push_back(work / times.steps[i] / (products.flops() / times.products[i]));
  const double step = median(times.steps), alone = median(times.products), rate = work / step / 1e9;
  items.push_back({"weight_products", products.flops() / alone / 1e9, "GFLOP/s", ceilings.flops / 1e9});
  items.push_back({"step", rate, "GFLOP/s", rate / median(ratios)});
  items.push_back({"step_tokens", static_cast<double>(run.tokens_a_step()) / step, "tokens/s", 0});

  const char* backward = spec.train.deterministic ? kAttentionBackward : kAttentionBackwardFree;
  const double attention = static_cast<double>(spec.model.layers * spec.layout.micro) *
                           (seconds.at(kAttentionForward) + seconds.at(backward));
  const double others = bytes_beside_products(spec) / ceilings.bytes, floor = alone + attention + others;
  items.push_back({"floor_products", alone * 1e3, "ms", 0});
  items.push_back({"floor_attention", attention * 1e3, "ms", 0});
  items.push_back({"floor_others", others * 1e3, "ms", 0});
  items.push_back({"library_floor", floor * 1e3, "ms", 0});
  items.push_back({"step_time", step * 1e3, "ms", floor * 1e3});
  items.push_back({"step_memory", static_cast<double>(run.ledger().peak()) / 1048576, "MiB", 0});
  if (spec.run.autotune) {
    bench.tuning = tuning_of(run.stream());
    for (const auto& [form, algorithm] : tuning_of(desk.stream()).products)
      bench.tuning.products.emplace(form, algorithm);
  }
  return bench;
}

}  // namespace lockstep
