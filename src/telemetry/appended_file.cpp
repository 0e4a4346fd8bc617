#include "telemetry/appended_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {

namespace {
int open_to_append(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) throw EnvironmentError(system_failure(path, "open", errno));
  return descriptor;
}
}  // namespace

AppendedFile::AppendedFile(std::filesystem::path path, int descriptor, std::size_t most_kept)
    : path_(std::move(path)), descriptor_(descriptor), most_kept_(most_kept) {}

AppendedFile::AppendedFile(const std::filesystem::path& path) : AppendedFile(path, open_to_append(path)) {}

AppendedFile::~AppendedFile() {
  write("");
  ::close(descriptor_);
}

void AppendedFile::write(const std::string& lines) {
  if (kept_.size() + lines.size() <= most_kept_)
    kept_ += lines;
  else
    dropped_ += std::count(lines.begin(), lines.end(), '\n');
  failure_.clear();
  std::size_t done = 0;
  while (done < kept_.size()) {
    const ssize_t written = ::write(descriptor_, kept_.data() + done, kept_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (written == 0) errno = ENOSPC;
      failure_ = system_failure(path_, "write", errno);
      break;
    }
    done += static_cast<std::size_t>(written);
  }
  kept_.erase(0, done);
}

}  // namespace lockstep
