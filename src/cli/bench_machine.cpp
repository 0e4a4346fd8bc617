#include "cli/bench_machine.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "base/output_file.h"
#include "bench/machine_bench.h"
#include "checkpoint/disk.h"
#include "cli/agree.h"
#include "cli/device_option.h"
#include "cli/refine_machine.h"
#include "cli/text_table.h"
#include "cli/usage_error.h"
#include "comm/control/socket.h"
#include "comm/mpi/world.h"
#include "comm/processes/run_rank.h"
#include "spec/text/quantity.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "tensor/cuda/device.h"

namespace lockstep {

namespace {

struct BenchMachineSettings {
  std::string out, disk, name = MachineBenchOptions{}.name;
  bool named = false;               // --name was given
  std::vector<std::string> refine;  // runs
  std::string machine;              // that they refine; empty: their own
  Device device = Device::cpu;
};

// What can be refused before anything is measured.
void check_machine_settings(const BenchMachineSettings& s, bool processes) {
  if (!s.out.empty()) require_output_file(s.out, fmt::format("--out {}", quote_text(s.out)));
  if (!s.disk.empty() && !std::filesystem::is_directory(s.disk))
    refuse(fmt::format("--disk {} is no folder", quote_text(s.disk)), "name a folder on the disk to be measured");
  if (s.device != Device::cuda) return;
  if (processes)
    refuse("--device cuda under MPI: links between GPUs are not measured",
           "start without mpirun, and add [machine.intra_node] and [machine.inter_node] to the file by hand");
  if (cuda::gpu_count() == 0) throw UserError(ExitCode::environment, "there is no GPU here", "use --device cpu");
}

std::string of_peak_text(double share) { return fmt::format("{:.2f}", share); }

void print_machine(const MachineBench& bench) {
  const MachineSpec& m = bench.machine;
  const auto rate = [](double value) { return quantity_text(rounded(value), QuantityKind::rate); };
  TextTable table{.title = "", .heads = {"", "value"}, .rows = {}};
  const auto row = [&](const std::string& what, const std::string& value) { table.rows.push_back({what, value}); };
  row(m.kind == MachineSpec::Kind::threads ? "nodes x cores" : "nodes x devices",
      fmt::format("{} x {}", m.nodes, m.devices_per_node));
  row("memory", byte_text(m.memory));
  for (const auto& [name, peak] :
       {std::pair{"fp64", m.peaks.fp64}, {"fp32", m.peaks.fp32}, {"bf16", m.peaks.bf16}, {"fp16", m.peaks.fp16}})
    if (peak > 0) row(fmt::format("products, {}", name), quantity_text(peak, QuantityKind::operations));
  double worst = 0;
  for (const ProductTiming& p : bench.products) worst = std::max(worst, std::abs(bench.predicted(p) / p.seconds - 1));
  row("products, best share of it", of_peak_text(m.products.best));
  row("half of that at M, N, K",
      fmt::format("{:.3g}, {:.3g}, {:.3g}", m.products.half_m, m.products.half_n, m.products.half_k));
  row(fmt::format("that curve at {} shapes, worst error", bench.products.size()), fmt::format("{:.0f}%", worst * 100));
  row("attention, forward and backward",
      fmt::format("{} and {} of it", of_peak_text(m.attention.forward), of_peak_text(m.attention.backward)));
  for (const MachineSpec::CopyRate& copy : m.copies)
    row(fmt::format("copy of {}", byte_text(static_cast<std::int64_t>(copy.size))), rate(copy.rate));
  for (const auto& [kind, share] : m.kernels) row(kind, of_peak_text(share) + " of a copy");
  row("a step over its kernels alone", fmt::format("{:.2f}: all shares here are of steps", bench.step_ratio));
  row("launch", quantity_text(m.launch, QuantityKind::time));
  const auto time = [](double value) { return quantity_text(value, QuantityKind::time); };
  if (m.sum_rate > 0) row("messages, latency", time(m.intra_node.latency));
  if (m.copy_rate > 0) row("messages, summed and copied", fmt::format("{}, {}", rate(m.sum_rate), rate(m.copy_rate)));
  if (m.nodes > 1) {
    const MachineLink& link = m.inter_node;
    row("between nodes", fmt::format("{}, {}", rate(link.bandwidth), time(link.latency)));
    row("  sums",
        fmt::format("{}, {} per step", rate(link.bandwidth * link.efficiency), time(link.collective_latency)));
    row("  one way, both ways", fmt::format("{}, {} each", rate(link.bandwidth * link.pair_efficiency),
                                            rate(link.bandwidth * link.pair_efficiency * link.both_ways)));
    row("  work beside messages", fmt::format("{:.2f} times as long", 1 + m.overlap_slowdown));
  }
  if (m.host_link > 0) row("host link, each way", rate(m.host_link));
  if (m.disk_read > 0) row("disk, read and written", fmt::format("{}, {}", rate(m.disk_read), rate(m.disk_write)));
  fmt::print("{}", table.plain());
}

void write_machine(const BenchMachineSettings& s, std::string_view how, const MachineSpec& machine) {
  if (s.out.empty()) return;
  const std::string text = fmt::format(
      "# {} by `lockstep bench machine`; docs/choosing.md says what each key means.\n{}", how, to_toml(machine));
  replace_file(Disk(), s.out, [&](DiskFile& file) { file.write(text.data(), std::ssize(text)); });
}

void report_machine(const BenchMachineSettings& s, const MachineBench& bench) {
  print_machine(bench);
  write_machine(s, "Measured", bench.machine);
}

int run_refinement(const BenchMachineSettings& s) {
  if (!s.out.empty()) require_output_file(s.out, fmt::format("--out {}", quote_text(s.out)));
  MachineSpec machine = refined_by_runs(s.refine, s.machine);
  if (s.named) machine.name = s.name;
  write_machine(s, "Refined", machine);
  return static_cast<int>(ExitCode::done);
}

int run_bench_machine(const BenchMachineSettings& s) {
  MachineBenchOptions options{.device = s.device, .name = s.name};
  if (!s.disk.empty()) options.disk = s.disk;
  if (!s.refine.empty()) {
    if (MpiWorld::launched()) refuse("--refine under MPI: it reads run folders, once", "start without mpirun");
    return run_refinement(s);
  }
  if (!MpiWorld::launched()) {
    check_machine_settings(s, false);
    report_machine(s, measure_this_machine(options));
    return static_cast<int>(ExitCode::done);
  }
  MpiWorld world({.deadline_seconds = 300});  // rank 0 measures its cores while the others wait
  std::unique_ptr<Communicator> ranks = world.communicator();
  require_same_program("bench machine", texts_over(*ranks), world.rank());
  run_rank(world, std::move(ranks), [&](std::unique_ptr<Communicator> comm) {
    const bool first = comm->rank() == 0;
    if (first) check_machine_settings(s, true);
    const std::vector<std::string> hosts = texts_over(*comm)(control::host_name());
    MachineBench bench;
    if (first) bench = measure_this_machine(options);
    measure_links(bench.machine, *comm, hosts);
    if (first) report_machine(s, bench);
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_bench_machine(CLI::App& bench, std::function<int()>& chosen) {
  auto s = std::make_shared<BenchMachineSettings>();
  CLI::App* command = bench.add_subcommand("machine", "Measure this machine and write a machine file");
  command->footer(
      "Measures products by type and shape, attention, copies by size, the other kernels beside them, launching,\n"
      "messages between ranks and, with --disk, a disk; on the cpu per core, while all cores do the same. Under "
      "mpirun\n"
      "the processes measure messages: those of one host within it, one of each host between them, and\n"
      "each process is a device of the file where there are several hosts. docs/choosing.md\n"
      "says what each key of the file means. Takes about fifteen seconds; keep the machine quiet meanwhile.\n\n"
      "--refine measures nothing: it scales the kernels' shares and the rates of messages of a machine file by what\n"
      "these runs took beside what it predicts of them, and prints the error before and after.\n\n"
      "Examples: lockstep bench machine --out machine.toml\n"
      "          mpirun -n 4 --bind-to none lockstep bench machine --out cluster.toml\n"
      "          lockstep bench machine --refine runs/a --refine runs/b --out refined.toml");
  command->add_option("--out", s->out, "Machine file to write; the table is printed anyway")->type_name("FILE");
  CLI::Option* refine =
      command
          ->add_option("--refine", s->refine,
                       "Refine a machine file by the times of this run instead; may be given several times")
          ->type_name("RUN")
          ->allow_extra_args(false);
  command->add_option("--machine", s->machine, "Of --refine: the file to refine, or a name [run.machine of the runs]")
      ->type_name("NAME|FILE")
      ->needs(refine);
  CLI::Option* name = command->add_option("--name", s->name, "What the file calls the machine [this-machine]");
  name->type_name("NAME");
  command->add_option("--disk", s->disk, "Measure the disk that this folder is on, too")
      ->type_name("FOLDER")
      ->excludes(refine);
  add_device_option(*command, s->device);
  command->callback([s, name, &bench, &chosen] {
    s->named = name->count() > 0;
    for (const CLI::Option* option : bench.get_options())
      if (option->count() > 0)
        refuse(fmt::format("{} is of lockstep bench, not of bench machine", option->get_name()), "leave it out");
    chosen = [s] { return run_bench_machine(*s); };
  });
}

}  // namespace lockstep
