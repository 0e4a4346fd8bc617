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
}  // namespace

void MetricsFile::fail(const char* call) const {
  throw EnvironmentError(
      fmt::format("{}: {} failed: {}", path_.string(), call, std::generic_category().message(errno)));
}

MetricsFile::MetricsFile(std::filesystem::path path, std::int64_t last_step) : path_(std::move(path)) {
  const std::string before = last_step > 0 ? kept_lines(path_, last_step) : "";
  const std::filesystem::path beside = path_.string() + ".partial";
  fd_ = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("open");
  try {
    write(before);
    if (::rename(beside.c_str(), path_.c_str()) != 0) fail("rename");
  } catch (...) {
    ::close(fd_);
    ::unlink(beside.c_str());
    throw;
  }
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::write(const std::string& line) {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(fd_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace lockstep
