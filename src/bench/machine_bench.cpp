#include "bench/machine_bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <map>

#include "base/median.h"
#include "bench/core_bench.h"
#include "bench/disk_bench.h"
#include "bench/host_link_bench.h"
#include "bench/machine_step.h"
#include "comm/threads/run_ranks.h"
#include "kernels/cpu/ceilings.h"
#include "plan/coding_rates.h"
#include "plan/message_rates.h"
#include "plan/plan.h"
#include "spec/machine/known_gpus.h"
#include "telemetry/number_text.h"
#include "tensor/cuda/device.h"
#include "tensor/disk/file_memory.h"
#include "tensor/meta/kernel.h"
#include "tensor/meta/stream.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

// The names of a machine file are those of the kernels that are counted.
static_assert(std::ranges::all_of(kCopyLikeKernels, [](std::string_view name) {
  return std::ranges::find(meta::kKernelNames, name) != meta::kKernelNames.end();
}));

constexpr std::int64_t kBytesPerCore = std::int64_t{512} << 20;
constexpr std::int64_t kCodedElements = std::int64_t{1} << 20;

std::int64_t whole_mebibytes(std::int64_t bytes) { return bytes >> 20 << 20; }

// A run whose kernels are timed: a layer of a small model.
RunSpec kernels_run(Device device, Precision precision, const BenchSizes& sizes, std::int64_t tokens) {
  RunSpec run = bench_run_in(device, precision);
  run.model = family_defaults(Family::llama);
  run.model.vocabulary = sizes.vocabulary;
  run.model.layers = 1;
  run.model.width = sizes.width;
  run.model.head_width = sizes.head_width;
  run.model.heads = run.model.kv_heads = sizes.width / sizes.head_width;
  run.model.ffn_width = sizes.ffn;
  run.model.max_positions = sizes.all_tokens;
  run.data.seq = tokens;
  run.train.global_batch = sizes.all_tokens / tokens;
  return run;
}

std::vector<KernelBench> benches_of(const RunSpec& run) {
  return kernel_benches(run, Model(run.model, run.train.global_batch, run.data.seq,
                                   run.precision.compute == Precision::fp32 ? DType::f32 : DType::bf16));
}

meta::Work counted(const RunSpec& run, const KernelBench& bench) {
  TimedTensors t(run, TimedTensors::Kind::counting);
  const auto call = bench.make(t);
  meta::Work& work = meta::Stream::of(t.stream()).work();
  work = {};
  call();
  return work;
}

// Of the kernels of kernel_benches(); empty: priced by its operations.
std::string kind_of_bench(const std::string& name) {
  for (const auto& [begins, kind] : {std::pair{"rmsnorm", "norm"},
                                     {"rope", "rope"},
                                     {"swiglu", "activation"},
                                     {"add", "elementwise"},
                                     {"cross_entropy", "cross_entropy"},
                                     {"embedding", "embedding"},
                                     {"norm_sum", "sum"},
                                     {"adamw", "optimizer"}})
    if (name.starts_with(begins)) return kind;
  return "";
}

class ThisMachine {
 public:
  explicit ThisMachine(const MachineBenchOptions& options)
      : options_(options),
        gpu_(options.device == Device::cuda),
        sizes_(gpu_ ? kOfAGpu : kOfACore),
        cores_(gpu_ ? 1 : usable_cores()) {}

  MachineBench measure() {
    if (const std::int64_t free = available_memory(), needed = cores_ * kBytesPerCore; free < needed)
      throw UserError(
          ExitCode::does_not_fit,
          fmt::format("{} are free, and measuring {} cores takes {}", byte_text(free), cores_, byte_text(needed)),
          "end other programs, or use fewer cores, as in taskset -c 0-3 lockstep bench machine");
    MachineSpec& m = bench_.machine;
    m.name = options_.name;
    m.kind = gpu_ ? MachineSpec::Kind::devices : MachineSpec::Kind::threads;
    m.devices_per_node = cores_;
    m.memory = whole_mebibytes(available_memory(options_.device));
    m.source = fmt::format("measured by lockstep bench machine on {}",
                           gpu_ ? cuda::gpu_name() : fmt::format("{} core{}", cores_, cores_ == 1 ? "" : "s"));
    m.launch = rounded(on_all([](const CoreBench& core) { return core.launch(); }));
    measure_copies();
    measure_products();
    measure_attention();
    measure_kernels();
    measure_messages_here();
    if (gpu_) measure_host();
    if (options_.disk) measure_disk_of(*options_.disk);
    measure_whole_step();
    return bench_;
  }

 private:
  Precision precision() const { return gpu_ ? Precision::bf16 : Precision::fp32; }

  // The median over cores that all do it at once.
  double on_all(const std::function<double(const CoreBench&)>& measure) const {
    std::vector<double> all(static_cast<std::size_t>(cores_));
    const auto body = [&](std::unique_ptr<Communicator> comm) {
      if (!gpu_) take_share_of_cores(comm->rank(), comm->size());
      const CoreBench core(options_.device, [&] { comm->barrier()->wait(); });
      all[static_cast<std::size_t>(comm->rank())] = measure(core);
    };
    // In a thread of its own, as the one that calls is rank 0 and would keep to its share of the cores.
    std::async(std::launch::async, [&] { run_ranks(cores_, body); }).get();
    return median(all);
  }

  void measure_copies() {
    for (const std::int64_t touched : sizes_.copies) {
      const double seconds = on_all([&](const CoreBench& core) { return core.copy(touched); });
      const double size = static_cast<double>(touched);
      // What launching takes is counted beside every kernel.
      const double work = std::max(seconds - bench_.machine.launch, seconds / 4);
      bench_.machine.copies.push_back({.size = size, .rate = rounded(size / work)});
    }
  }

  void measure_products() {
    MachineSpec& m = bench_.machine;
    const std::int64_t L = sizes_.product, S = sizes_.small[1];
    std::vector<ProductTiming>& all = bench_.products;
    for (const std::int64_t s : sizes_.small)
      for (const ProductTiming& p : {ProductTiming{s, L, L}, {L, s, L}, {L, L, s}}) all.push_back(p);
    for (const std::int64_t s : {S, 2 * S, L, sizes_.largest}) all.push_back({s, s, s});
    for (ProductTiming& p : all) {
      const double seconds = on_all([&](const CoreBench& core) { return core.product(precision(), p); });
      p.seconds = std::max(seconds - m.launch, seconds / 4);
      bench_.peak = std::max(bench_.peak, p.flops() / p.seconds);
    }
    const ProductTiming large{sizes_.largest, sizes_.largest, sizes_.largest};
    const auto rate = [&](Precision type) {
      return rounded(large.flops() / on_all([&](const CoreBench& core) { return core.product(type, large); }));
    };
    bench_.peak = rounded(bench_.peak);
    const KnownGpu* known = gpu_ ? find_gpu(cuda::gpu_name()) : nullptr;
    if (known) {
      m.peaks = {.fp64 = known->wide, .fp32 = known->single, .bf16 = known->narrow, .fp16 = known->narrow};
      bench_.peak = known->narrow;
    } else {
      m.peaks = {.fp64 = rate(Precision::fp64),
                 .fp32 = gpu_ ? rate(Precision::fp32) : bench_.peak,
                 .bf16 = gpu_ ? bench_.peak : rate(Precision::bf16),
                 .fp16 = rate(Precision::fp16)};
    }
    m.products = fit_products(all, bench_.peak);
    for (double* value : {&m.products.best, &m.products.half_m, &m.products.half_n, &m.products.half_k})
      *value = rounded(*value);
    bench_.curve = m.products;
  }

  void measure_attention() {
    std::vector<AttentionTiming> timings;
    for (const std::int64_t tokens : sizes_.tokens) {
      const RunSpec run = kernels_run(options_.device, precision(), sizes_, tokens);
      AttentionTiming& t = timings.emplace_back(AttentionTiming{.tokens = tokens});
      for (const KernelBench& bench : benches_of(run)) {
        const bool backward = bench.name == kAttentionBackward;
        if (bench.name != kAttentionForward && !backward) continue;
        (backward ? t.backward : t.forward) = on_all([&](const CoreBench& core) { return core.kernel(run, bench); });
        (backward ? t.backward_flops : t.forward_flops) = static_cast<double>(counted(run, bench).flops);
      }
    }
    MachineSpec::Attention& fit = bench_.machine.attention = fit_attention(timings, bench_.peak);
    for (double* value : {&fit.forward, &fit.backward, &fit.half_pairs}) *value = rounded(*value);
  }

  void measure_kernels() {
    MachineSpec& m = bench_.machine;
    const RunSpec run = kernels_run(options_.device, precision(), sizes_, sizes_.tokens[1]);
    std::map<std::string, std::pair<double, double>> seconds;  // by kind: of copies of as many bytes, and of its own
    for (const KernelBench& bench : benches_of(run)) {
      const std::string kind = kind_of_bench(bench.name);
      if (kind.empty()) continue;
      const meta::Work work = counted(run, bench);
      const double bytes = static_cast<double>(work.bytes_read + work.bytes_written);
      auto& [copies, own] = seconds[kind];
      const double taken = on_all([&](const CoreBench& core) { return core.kernel(run, bench); });
      copies += bytes / m.rate_of_copy(bytes);
      own += std::max(taken - m.launch, taken / 4);
    }
    for (const auto& [kind, of] : seconds) m.kernels[kind] = rounded(of.first / of.second);
    if (!gpu_) measure_coding_kernels(run);  // which no GPU has
  }

  // Of compression: each form by itself, since they differ tenfold.
  void measure_coding_kernels(const RunSpec& run) {
    MachineSpec& m = bench_.machine;
    for (const auto& [kind, form] :
         {std::pair{"code_bf16", "bf16"}, {"code_int8", "int8"}, {"code_onebit", "onebit"}, {"top_k", "topk:0.01"}}) {
      const Compression compression = Compression::parse(form).value();
      const meta::Work work = coding_work(run, compression, kCodedElements);
      const double bytes = static_cast<double>(work.bytes_read + work.bytes_written);
      const double each = bytes / static_cast<double>(work.calls);  // whose size the copy rate depends on
      m.kernels[kind] =
          rounded(1 / (m.rate_of_copy(each) * measure_coding(run, compression, 1, cores_, kCodedElements)));
    }
  }

  void measure_messages_here() {
    if (gpu_ || cores_ == 1) return;
    const MessageRates rates = measure_messages(cores_, cores_, {.rounds = 20, .quickest = true});
    MachineSpec& m = bench_.machine;
    m.sum_rate = rounded(rates.summed);
    m.copy_rate = rounded(rates.copied);
    m.intra_node = {.bandwidth = rounded(rates.copied / 2), .latency = rounded(rates.latency)};
  }

  void measure_host() {
    MachineSpec& m = bench_.machine;
    const int gpus = std::max(1, cuda::gpu_count());
    m.host_link = rounded(measure_host_link(Device::cuda).both);
    m.host_copy = rounded(cpu::copy_bandwidth(usable_cores()) / gpus);
    m.host_memory = whole_mebibytes(available_memory() / gpus);
  }

  void measure_disk_of(const std::filesystem::path& folder) {
    constexpr std::int64_t kFile = std::int64_t{256} << 20;
    MachineSpec& m = bench_.machine;
    m.disk = whole_mebibytes(disk::free_bytes_in(folder) / m.devices_per_node);
    if (disk::free_bytes_in(folder) < kFile)
      throw UserError(ExitCode::does_not_fit,
                      fmt::format("{} are free in {}, and the file takes {}", byte_text(disk::free_bytes_in(folder)),
                                  folder.string(), byte_text(kFile)),
                      "name a folder on another disk");
    const DiskRate rate = measure_disk_each_way({.folder = folder, .bytes = kFile});
    m.disk_read = rounded(rate.read);
    m.disk_write = rounded(rate.write);
  }

  void measure_whole_step() {
    const RunSpec run = step_run(options_.device, precision(), sizes_);
    const double seconds = on_all([&](const CoreBench& core) { return measure_step(run, [&] { core.together(); }); });
    MachineSpec& m = bench_.machine;
    m = held_to_step(m, run, seconds);
    bench_.step_ratio = rounded(bench_.curve.best / m.products.best);
    for (double* value : {&m.products.best, &m.attention.forward, &m.attention.backward}) *value = rounded(*value);
    for (auto& [kind, share] : m.kernels) share = rounded(share);
  }

  const MachineBenchOptions& options_;
  bool gpu_;
  const BenchSizes& sizes_;
  int cores_;
  MachineBench bench_;
};

}  // namespace

double rounded(double measured) { return std::stod(fmt::format("{:.4g}", measured)); }

double MachineBench::predicted(const ProductTiming& p) const {
  const auto of = [](std::int64_t size) { return static_cast<double>(size); };
  return p.flops() / (peak * curve.share(of(p.m), of(p.n), of(p.k)));
}

MachineBench measure_this_machine(const MachineBenchOptions& options) { return ThisMachine(options).measure(); }

}  // namespace lockstep
