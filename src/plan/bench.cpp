#include "plan/bench.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "kernels/attention.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/random.h"
#include "kernels/rmsnorm.h"
#include "kernels/swiglu.h"
#include "parallel/unit_storage.h"
#include "spec/model_flops.h"
#include "tensor/cpu/stream.h"
#include "tensor/meta/stream.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

// Tensors for kernels to work on, on the cpu and as shadows on meta, where the same call is counted.
class Desk {
 public:
  Desk(Device device, int threads, DType dtype) : dtype_(dtype), memory_(make_memory(device, ledger_)) {
    if (device == Device::meta)
      stream_ = std::make_unique<meta::Stream>();
    else
      stream_ = std::make_unique<cpu::Stream>(*memory_, threads);
  }
  Tensor tensor(const Shape& shape, DType dtype) {
    buffers_.push_back(memory_->allocate(shape.elements() * size_of(dtype), Tag::workspace));
    const Tensor t = view(buffers_.back(), dtype, shape);
    if (is_float(dtype) && accumulator_of(dtype) == dtype)
      init_normal({.x = t.reshape({shape.elements()}), .key = buffers_.size(), .std = 0.1}, *stream_);
    else if (is_float(dtype))
      fill({.y = t, .value = 0.1}, *stream_);
    else if (t.raw())
      std::fill_n(t.data<std::int32_t>(), t.elements(), 1);
    return t;
  }
  Tensor tensor(const Shape& shape) { return tensor(shape, dtype_); }
  Tensor sums(const Shape& shape) { return tensor(shape, accumulator_of(dtype_)); }
  Stream& stream() { return *stream_; }

 private:
  DType dtype_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
};

struct Ceilings {
  double flops, bytes;
};

// A kernel at the run's sizes: made on a desk, then called again and again.
struct KernelBench {
  std::string name;
  std::function<std::function<void()>(Desk&)> make;
};

std::vector<KernelBench> kernel_benches(const RunSpec& run) {
  const ModelSpec m = run.model;
  const std::int64_t B = run.train.global_batch / run.layout.micro, T = run.data.seq, N = B * T;
  const double scale = 0.1;
  std::vector<KernelBench> all;
  all.push_back({"attention_forward", [=](Desk& d) {
                   AttentionForwardArgs args{.o = d.tensor({B, T, m.heads, m.head_width}),
                                             .lse = d.sums({B, m.heads, T}),
                                             .q = d.tensor({B, T, m.heads, m.head_width}),
                                             .k = d.tensor({B, T, m.kv_heads, m.head_width}),
                                             .v = d.tensor({B, T, m.kv_heads, m.head_width}),
                                             .scale = scale};
                   return [args, &d] { attention_forward(args, d.stream()); };
                 }});
  all.push_back(
      {"attention_backward", [=](Desk& d) {
         const auto q = [&] { return d.tensor({B, T, m.heads, m.head_width}); };
         const auto k = [&] { return d.tensor({B, T, m.kv_heads, m.head_width}); };
         AttentionForwardArgs f{.o = q(), .lse = d.sums({B, m.heads, T}), .q = q(), .k = k(), .v = k(), .scale = scale};
         attention_forward(f, d.stream());
         AttentionBackwardArgs args{.dq = q(),
                                    .dk = k(),
                                    .dv = k(),
                                    .d_o = q(),
                                    .q = f.q,
                                    .k = f.k,
                                    .v = f.v,
                                    .o = f.o,
                                    .lse = f.lse,
                                    .scale = scale};
         return [args, &d] { attention_backward(args, d.stream()); };
       }});
  all.push_back({"rmsnorm_forward", [=](Desk& d) {
                   RmsNormForwardArgs args{.y = d.tensor({N, m.width}),
                                           .rstd = d.sums({N}),
                                           .x = d.tensor({N, m.width}),
                                           .weight = d.tensor({m.width}),
                                           .eps = 1e-5};
                   return [args, &d] { rmsnorm_forward(args, d.stream()); };
                 }});
  all.push_back({"swiglu_forward", [=](Desk& d) {
                   SwigluForwardArgs args{.y = d.tensor({N, m.ffn_width}), .gate_up = d.tensor({N, 2 * m.ffn_width})};
                   return [args, &d] { swiglu_forward(args, d.stream()); };
                 }});
  all.push_back({"cross_entropy", [=](Desk& d) {
                   const std::int64_t rows = std::min<std::int64_t>(N, 256);
                   const Tensor logits = d.sums({rows, m.vocabulary});
                   CrossEntropyArgs args{.losses = d.sums({rows}),
                                         .dlogits = d.tensor({rows, m.vocabulary}),
                                         .logits = logits,
                                         .targets = d.tensor({rows}, DType::i32),
                                         .scale = d.sums({1})};
                   return [args, &d] { cross_entropy(args, d.stream()); };
                 }});
  return all;
}

BenchItem measure(const KernelBench& bench, DType dtype, int threads, const Ceilings& ceilings) {
  Desk meta(Device::meta, 1, dtype);
  const auto counted = bench.make(meta);
  meta::Work& work = meta::Stream::of(meta.stream()).work();
  work = {};
  counted();
  Desk desk(Device::cpu, threads, dtype);
  const auto call = bench.make(desk);
  std::vector<double> times;
  for (double spent = 0; times.size() < 5 || (spent < 0.2 && times.size() < 1000); spent += times.back())
    times.push_back(seconds_of(call));
  const double seconds = median(times);
  if (work.matmul_flops > 0)
    return {bench.name, static_cast<double>(work.flops) / seconds / 1e9, "GFLOP/s", ceilings.flops / 1e9};
  return {bench.name, static_cast<double>(work.bytes_read + work.bytes_written) / seconds / 1e9, "GB/s",
          ceilings.bytes / 1e9};
}

// The products of a model's weights, forward and both backwards, on operands of their own.
class WeightProducts {
 public:
  WeightProducts(const RunSpec& run, const Model& model, Desk& desk) : desk_(desk) {
    const std::int64_t N = run.train.global_batch / run.layout.micro * run.data.seq;
    for (int u = 1; u < model.units(); ++u)  // the embedding has none
      for (const StoredParameter& p : model.unit(u).layout().parameters())
        if (p.shape.size() == 2) matrices_.push_back({p.shape[0], p.shape[1]});
    std::int64_t widest = 0, largest = 0;
    for (const auto& [rows, columns] : matrices_) {
      widest = std::max({widest, rows, columns});
      largest = std::max(largest, rows * columns);
    }
    N_ = N;
    x_ = desk.tensor({N * widest});
    dx_ = desk.tensor({N * widest});
    y_ = desk.tensor({N * widest});
    w_ = desk.tensor({largest});
    dw_ = desk.sums({largest});
    for (const auto& [rows, columns] : matrices_) flops_ += 6.0 * static_cast<double>(N * rows * columns);
    flops_ *= static_cast<double>(run.layout.micro);
    micro_ = run.layout.micro;
  }
  double flops() const { return flops_; }
  void run() {
    for (std::int64_t m = 0; m < micro_; ++m)
      for (const auto& [out, in] : matrices_) {
        const Tensor x = x_.slice(0, 0, N_ * in).reshape({N_, in}), dx = dx_.slice(0, 0, N_ * in).reshape({N_, in}),
                     y = y_.slice(0, 0, N_ * out).reshape({N_, out}), w = w_.slice(0, 0, out * in).reshape({out, in}),
                     dw = dw_.slice(0, 0, out * in).reshape({out, in});
        matmul({.c = y, .a = x, .b = w, .transpose_b = true}, desk_.stream());
        matmul({.c = dx, .a = y, .b = w}, desk_.stream());
        matmul({.c = dw, .a = y, .b = x, .transpose_a = true}, desk_.stream());
      }
  }

 private:
  Desk& desk_;
  std::vector<std::pair<std::int64_t, std::int64_t>> matrices_;
  Tensor x_, dx_, y_, w_, dw_;
  std::int64_t N_ = 0, micro_ = 1;
  double flops_ = 0;
};

}  // namespace

std::vector<BenchItem> run_bench(const RunSpec& asked, int rounds) {
  RunSpec spec = asked;
  spec.train.async_save = false;  // nothing is saved
  const int threads = threads_of(spec);
  const DType dtype = storage_types(spec.precision).compute;
  const Ceilings ceilings{cpu::fma_peak(dtype, threads), cpu::copy_bandwidth(threads)};
  std::vector<BenchItem> items{{"fma_peak", ceilings.flops / 1e9, "GFLOP/s", 0},
                               {"copy_bandwidth", ceilings.bytes / 1e9, "GB/s", 0}};
  for (const KernelBench& bench : kernel_benches(spec)) items.push_back(measure(bench, dtype, threads, ceilings));

  TrainingRun run(spec, Device::cpu, "");
  run.init_weights();
  Desk desk(Device::cpu, threads, dtype);
  WeightProducts products(spec, run.replica().model(), desk);
  std::vector<double> steps, alone;
  Progress progress;
  for (int round = 0; round <= rounds; ++round) {
    const double step = seconds_of([&] { run.step(progress); }), product = seconds_of([&] { products.run(); });
    progress.samples += spec.train.global_batch;
    if (round == 0) continue;  // the first touches the memory
    steps.push_back(step);
    alone.push_back(product);
  }
  // The rate of a step and that of the products timed right after it meet the same noise: the ratio is the median of
  // theirs, and the ceiling what that makes of the step's median.
  const double work = model_flops(spec.model, spec.train.global_batch, spec.data.seq);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < steps.size(); ++i) ratios.push_back(work / steps[i] / (products.flops() / alone[i]));
  const double step = median(steps), rate = work / step / 1e9;
  items.push_back({"weight_products", products.flops() / median(alone) / 1e9, "GFLOP/s", ceilings.flops / 1e9});
  items.push_back({"step", rate, "GFLOP/s", rate / median(ratios)});
  items.push_back({"step_tokens", static_cast<double>(run.tokens_a_step()) / step, "tokens/s", 0});
  items.push_back({"step_time", step * 1e3, "ms", 0});
  items.push_back({"step_memory", static_cast<double>(run.ledger().peak()) / 1048576, "MiB", 0});
  return items;
}

}  // namespace lockstep
