#include "support/killed_updates.h"

#include <fmt/format.h>

#include <csignal>
#include <fstream>

#include "support/faulty_disk.h"
#include "support/run_results.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

std::string killed_updates(int kills, const std::string& layout) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(6, 20);
  fs::create_directories(folder / "fast");
  // A fifth of the kills come before the first checkpoint after the last one, so a life makes two steps or more.
  const std::string steps = fmt::format("train.steps={}", 10 + 9 * kills);
  const auto train = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> all{
        "train", folder / "tiny.toml", "--out", folder / out,        "--layout", layout, "--set", steps,
        "--set", "train.save_every=2", "--set", "train.eval_every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Outcome whole = run_program(train("whole", {}));
  if (whole.code != 0) return whole.err;

  const std::vector<std::string> offloaded{"--resume",
                                           "--set",
                                           "memory.offload_optimizer=disk",
                                           "--set",
                                           "memory.offload_window=1",
                                           "--set",
                                           "memory.offload_folder=" + (folder / "fast")};
  for (int kill = 0; kill < kills; ++kill) {
    // A step reads and writes eight windows or more, resuming writes all of them once.
    const std::string fault = fmt::format("{}:{}:kill", kill % 3 == 2 ? "read" : "write", 60 + kill * 37 % 41);
    const Outcome killed = run_on_faulty_disk(fault, train("killed", offloaded));
    if (killed.code != 128 + SIGKILL) return fmt::format("{}: exit code {}: {}", fault, killed.code, killed.err);
    if (killed.out.find("\nstep ") == std::string::npos) return fmt::format("{}: before any step", fault);
    if (!fs::is_empty(folder / "fast")) return fmt::format("{}: something is left of the state", fault);
    for (const auto& entry : fs::recursive_directory_iterator(folder / "killed"))
      if (entry.path().filename().string().starts_with("offload")) return entry.path().string() + " is left";
  }
  const Outcome ended = run_program(train("killed", offloaded));
  if (ended.code != 0) return ended.err;
  if (ended.out.find("resuming from") == std::string::npos) return "it had no checkpoint to resume from";
  return results_in(folder / "killed") == results_in(folder / "whole") ? "" : "other losses or checkpoints";
}

}  // namespace lockstep::tests
