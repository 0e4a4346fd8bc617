#include "cli/bench_disk.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/disk_bench.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "tensor/disk/file_memory.h"

namespace lockstep {

namespace {

struct BenchDiskSettings {
  std::string folder = ".";
  std::int64_t mebibytes = 1024;
  int rounds = 3;
  bool json = false;
};

int run_bench_disk(const BenchDiskSettings& s) {
  if (!std::filesystem::is_directory(s.folder))
    throw UserError(ExitCode::usage, fmt::format("{} is no folder", quote_text(s.folder)),
                    "name a folder on the disk to be measured");
  const std::int64_t bytes = s.mebibytes << 20;
  if (const std::int64_t free = disk::free_bytes_in(s.folder); free < 2 * bytes)
    throw UserError(
        ExitCode::does_not_fit,
        fmt::format("{} are free in {}, and the two files take {}", byte_text(free), s.folder, byte_text(2 * bytes)),
        fmt::format("use --size {} or less", std::max<std::int64_t>(64, free / 2 >> 20)));
  const DiskBench bench = measure_disk({.folder = s.folder, .bytes = bytes, .rounds = s.rounds});
  if (s.json) {
    nlohmann::ordered_json out{{"direct", bench.direct}, {"rates", nlohmann::ordered_json::array()}};
    for (const DiskRate& rate : bench.rates)
      out["rates"].push_back({{"request_bytes", rate.request_bytes},
                              {"depth", rate.depth},
                              {"read", rate.read},
                              {"write", rate.write},
                              {"both", rate.both}});
    out["windows"] = {{"value", bench.staged}, {"ceiling", bench.ceiling}, {"ratio", bench.ratio()}};
    fmt::print("{}\n", out.dump(2));
    return static_cast<int>(ExitCode::done);
  }
  const auto rate_text = [](double rate) { return byte_text(static_cast<std::int64_t>(rate)) + "/s"; };
  fmt::print("{:>10} {:>6} {:>14} {:>14} {:>20}\n", "request", "depth", "read", "write", "both, each way");
  for (const DiskRate& rate : bench.rates)
    fmt::print("{:>10} {:>6} {:>14} {:>14} {:>20}\n", byte_text(rate.request_bytes), rate.depth, rate_text(rate.read),
               rate_text(rate.write), rate_text(rate.both));
  fmt::print("windows of offloaded state: {} each way, of {} beside them (ratio {:.2f})\n", rate_text(bench.staged),
             rate_text(bench.ceiling), bench.ratio());
  if (!bench.direct) fmt::print("this file system has no direct reads and writes: these are rates of its cache\n");
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_bench_disk(CLI::App& bench, std::function<int()>& chosen) {
  auto s = std::make_shared<BenchDiskSettings>();
  CLI::App* command = bench.add_subcommand("disk", "Measure a disk as memory.offload_optimizer=disk uses it");
  command->footer(
      "Reads and writes a file without a name, with several sizes and numbers of requests, then offloaded state in\n"
      "windows beside it.\n\n"
      "Example: lockstep bench disk /mnt/nvme --size 4096");
  command->add_option("folder", s->folder, "On the disk [.]")->type_name("FOLDER");
  command->add_option("--size", s->mebibytes, "MiB of each of the two files [1024]")
      ->check(CLI::Range(64, 1 << 20).description(""))
      ->type_name("MIB");
  command->add_option("--rounds", s->rounds, "Times that each is measured [3]")
      ->check(CLI::Range(1, 100).description(""))
      ->type_name("N");
  command->add_flag("--json", s->json, "Print {direct, rates, windows}, in bytes per second");
  command->callback([s, &chosen] { chosen = [s] { return run_bench_disk(*s); }; });
}

}  // namespace lockstep
