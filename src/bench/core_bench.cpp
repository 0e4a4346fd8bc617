#include "bench/core_bench.h"

#include <time.h>

#include <algorithm>

#include "base/quartile.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace lockstep {

namespace {

constexpr double kEnoughSeconds = 0.04;  // of the calls of one kernel

// A GPU that multiplies without a pause lowers its clock within some tenths of a second, to what its power allows. A
// step is longer than that.
void settle_clock(const std::function<void()>& call, Stream& stream) {
  constexpr double kSettled = 0.5;  // seconds
  constexpr int kTogether = 20;
  for (double spent = 0; spent < kSettled;)
    spent += seconds_of(
        [&] {
          for (int i = 0; i < kTogether; ++i) call();
        },
        stream);
}

double quick_seconds(const std::function<void()>& call, Stream& stream) {
  constexpr double kShort = 50e-6;  // seconds: of so many that asking for the time is nothing beside them
  if (stream.runs_ahead()) return seconds_of_one(call, stream);
  const auto seconds = [&](int calls) {
    const double begin = computed_seconds();
    for (int i = 0; i < calls; ++i) call();
    return (computed_seconds() - begin) / calls;
  };
  seconds(1);  // pages and caches are filled
  const int calls = static_cast<int>(std::clamp(kShort / std::max(seconds(1), 1e-9), 1.0, 1000.0));
  std::vector<double> times;
  for (double spent = 0; times.size() < 4 || spent < kEnoughSeconds; spent += times.back() * calls)
    times.push_back(seconds(calls));
  return lower_quartile(std::move(times));
}

}  // namespace

double computed_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

RunSpec bench_run_in(Device device, Precision precision) {
  RunSpec run;
  run.run.device = device == Device::cuda ? RunDevice::cuda : RunDevice::cpu;
  run.run.threads = 1;
  run.precision = precision;
  return run;
}

double CoreBench::product(Precision precision, const ProductTiming& p) const {
  TimedTensors t(bench_run_in(device_, precision), TimedTensors::Kind::real);
  const Tensor c = t.tensor({p.m, p.n}), mk = t.tensor({p.m, p.k}), km = t.tensor({p.k, p.m}),
               kn = t.tensor({p.k, p.n}), nk = t.tensor({p.n, p.k});
  const MatmulArgs forms[] = {{.c = c, .a = mk, .b = nk, .transpose_b = true},
                              {.c = c, .a = mk, .b = kn},
                              {.c = c, .a = km, .b = kn, .transpose_a = true}};
  double sum = 0;
  for (const MatmulArgs& form : forms) {
    const auto call = [&] { matmul(form, t.stream()); };
    if (t.stream().runs_ahead()) settle_clock(call, t.stream());
    sum += time(t, call);
  }
  return sum / 3;
}

double CoreBench::kernel(const RunSpec& run, const KernelBench& bench) const {
  TimedTensors t(run, TimedTensors::Kind::real);
  return time(t, bench.make(t));
}

double CoreBench::copy(std::int64_t touched) const {
  TimedTensors t(bench_run_in(device_, Precision::fp32), TimedTensors::Kind::real);
  const std::int64_t bytes = touched / 2;
  const Buffer from = t.memory().allocate(bytes, Tag::workspace), to = t.memory().allocate(bytes, Tag::workspace);
  const Tensor x = view(from, DType::f32, {bytes / 4}), y = view(to, DType::f32, {bytes / 4});
  fill({.y = x, .value = 1}, t.stream());
  fill({.y = y, .value = 2}, t.stream());
  return time(t, [&] { cast({.y = y, .x = x}, t.stream()); });
}

double CoreBench::launch() const {
  TimedTensors t(bench_run_in(device_, Precision::fp32), TimedTensors::Kind::real);
  const AddArgs args{.y = t.tensor({64}), .a = t.tensor({64}), .b = t.tensor({64})};
  return time(t, [&] { add(args, t.stream()); });
}

double CoreBench::time(TimedTensors& t, const std::function<void()>& call) const {
  together_();
  return quick_seconds(call, t.stream());
}

}  // namespace lockstep
