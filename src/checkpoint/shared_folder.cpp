#include "checkpoint/shared_folder.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"
#include "checkpoint/all_or_none.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(50);  // between two looks

std::string read_token(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string leave_token(const fs::path& file, const Disk& disk) {
  std::random_device random;  // what a folder of another host, or of an earlier run, holds must not look like this
  const std::string text = fmt::format("{:08x}{:08x} {} {}", random(), random(), ::getpid(),
                                       std::chrono::system_clock::now().time_since_epoch().count());
  DiskFile out(disk, file);
  out.write(text.data(), std::ssize(text));
  out.finish();
  return text;
}

void find_token(const fs::path& file, const std::string& text, double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (read_token(file) != text) {
    if (Clock::now() < until) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    throw UserError(ExitCode::environment,
                    fmt::format("{}: rank 0 has written this file, but it is not to be seen from here after {} s",
                                file.string(), seconds),
                    "give the run a folder (run.out) on a file system that all hosts share, under the same path");
  }
}

void check_shared(const CheckpointFolder& folder, Communicator& ranks, const Disk& disk) {
  if (ranks.size() == 1) return;
  const bool first = ranks.rank() == 0;
  const fs::path file = folder.path / ".partial-step-token";  // a name that the next save would clean up
  std::optional<Provisional> provisional;
  const std::vector<std::string> tokens = all_or_none(&ranks, [&]() -> std::string {
    if (!first) return "";
    disk.make_folders(folder.path);
    provisional.emplace(disk, file);
    return leave_token(file, disk);
  });
  all_or_none(&ranks, [&]() -> std::string {
    if (!first) find_token(file, tokens[0], folder.seen_within);
    return "";
  });
}

}  // namespace lockstep
