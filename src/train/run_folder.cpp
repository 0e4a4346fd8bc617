#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/error.h"
#include "base/system_failure.h"
#include "checkpoint/checkpoint_folder.h"
#include "telemetry/appended_file.h"
#include "telemetry/launch_state.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {
// Missing, or a file that can be appended to.
bool takes_lines(const fs::path& file) {
  std::error_code ignored;
  const fs::file_type type = fs::status(file, ignored).type();
  return type == fs::file_type::regular || type == fs::file_type::not_found || type == fs::file_type::none;
}
}  // namespace

bool holds_a_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "run.toml", ignored) || !steps_in(folder / "checkpoints").empty();
}

RunFolder::RunFolder(fs::path path, Existing existing) : path_(std::move(path)) {
  const Disk disk;
  std::error_code ignored;
  if (existing != Existing::replace)
    for (const fs::path& file : {run_file(), plan(), metrics(), arrivals(), log(), events(), trace()})
      if (!takes_lines(file))
        throw UserError(ExitCode::bad_input_file, fmt::format("{} is not a regular file", file.string()),
                        "move it away, or choose another --out");
  for (fs::path at = path_; !at.empty() && !fs::exists(at, ignored) && at != at.parent_path(); at = at.parent_path())
    made_.push_back(at);
  disk.make_folders(path_);
  const fs::path lock = path_ / ".lock";
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw EnvironmentError(system_failure(lock, "open", errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw UserError(ExitCode::usage, fmt::format("another process is training in {}", path_.string()),
                    "wait for it, stop it, or choose another --out");
  }
  if (existing == Existing::refuse && holds_a_run(path_)) {
    ::close(lock_);
    throw UserError(ExitCode::usage, fmt::format("{} holds a run already", path_.string()),
                    "--resume continues it, --overwrite starts it over, --out DIR puts this one elsewhere");
  }
  if (existing == Existing::replace)
    for (const fs::path& old : {run_file(), plan(), metrics(), arrivals(), log(), events(), trace(), launch_file(path_),
                                ranks(), tensorboard(), checkpoints()})
      disk.remove_tree(old);
}

RunFolder::~RunFolder() {
  if (lock_ < 0) return;
  // Removes folders that were made for a run that never began; rmdir leaves those that are not empty.
  if (!made_.empty() && !holds_a_run(path_)) {
    ::unlink((path_ / ".lock").c_str());
    for (const fs::path& folder : made_) ::rmdir(folder.c_str());
  }
  ::close(lock_);
}

void log_end_of_rank(const fs::path& folder, int rank, const std::string& reason) noexcept {
  try {
    const fs::path log = folder / "log.txt";
    std::error_code missing;
    if (!fs::exists(log, missing)) return;
    constexpr std::streamoff kEnd = 16 << 10;
    std::ifstream in(log, std::ios::binary | std::ios::ate);
    in.seekg(std::max<std::streamoff>(0, in.tellg() - kEnd));
    const std::string end{std::istreambuf_iterator<char>(in), {}};
    if (end.find(reason) != std::string::npos) return;
    AppendedFile(log).write(fmt::format("rank {}: {}\n", rank, reason));
  } catch (...) {  // the reason itself is on standard error
  }
}

void RunFolder::replace(const fs::path& file, const std::string& text) const {
  replace_file(Disk(), file, [&](DiskFile& out) { out.write(text.data(), std::ssize(text)); });
}

void RunFolder::write_run_file(const std::string& toml) const { replace(run_file(), toml); }
void RunFolder::write_plan(const std::string& json) const { replace(plan(), json); }

}  // namespace lockstep
