#include "telemetry/partial_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep {

PartialFile::PartialFile(std::filesystem::path path) : path_(std::move(path)), beside_(path_.string() + ".partial") {
  descriptor_ = ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("open");
}

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!in_place_) ::unlink(beside_.c_str());
}

void PartialFile::finish() {
  flush();
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close");
  rename();
}

int PartialFile::finish_open() {
  flush();
  rename();
  return std::exchange(descriptor_, -1);
}

void PartialFile::flush() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t written = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void PartialFile::rename() {
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("rename");
  in_place_ = true;
}

void PartialFile::fail(const char* call) const { throw EnvironmentError(system_failure(path_, call, errno)); }

}  // namespace lockstep
