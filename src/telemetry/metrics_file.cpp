#include "telemetry/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"

namespace lockstep {

namespace {
// The lines of a file that are whole and belong to steps up to `last_step`.
std::string kept_lines(const std::filesystem::path& path, std::int64_t last_step) {
  std::string kept, line;
  std::ifstream in(path);
  while (std::getline(in, line) && !in.eof()) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    const auto step = object.find("step");
    if (step == object.end() || !step->is_number_integer() || step->get<std::int64_t>() > last_step) continue;
    kept += line + "\n";
  }
  return kept;
}

[[noreturn]] void fail(const std::filesystem::path& path, const char* call) {
  throw EnvironmentError(fmt::format("{}: {} failed: {}", path.string(), call, std::generic_category().message(errno)));
}

// The file with these lines, written beside and renamed; open to append.
int begin_with(const std::string& lines, const std::filesystem::path& path) {
  const std::filesystem::path beside = path.string() + ".partial";
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) fail(path, "open");
  try {
    for (std::size_t done = 0; done < lines.size();) {
      const ssize_t written = ::write(fd, lines.data() + done, lines.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path, "write");
      done += static_cast<std::size_t>(written);
    }
    if (::rename(beside.c_str(), path.c_str()) != 0) fail(path, "rename");
  } catch (...) {
    ::close(fd);
    ::unlink(beside.c_str());
    throw;
  }
  return fd;
}
}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, std::int64_t last_step)
    : file_(path, begin_with(last_step > 0 ? kept_lines(path, last_step) : "", path)) {}

}  // namespace lockstep
