// A small disk of its own at a path, while it lives: one that can be filled and emptied.
#pragma once
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace lockstep::tests {

class SmallDisk {
 public:
  // `size` as tmpfs takes it: "size=8m". Not every user may mount: ask the disk whether it is there.
  SmallDisk(std::filesystem::path at, const char* size) : at_(std::move(at)) {
    std::filesystem::create_directories(at_);
    there_ = ::mount("lockstep-test", at_.c_str(), "tmpfs", 0, size) == 0;
  }
  ~SmallDisk() {
    if (there_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  explicit operator bool() const { return there_; }

  // Programs that are started meanwhile do not get the file: what is open to one takes its room after empty() too.
  void fill() const {
    const int file = ::open((at_ / "filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const std::string part(4096, 'x');
    while (::write(file, part.data(), part.size()) > 0) {
    }
    ::close(file);
  }
  void empty() const { std::filesystem::remove(at_ / "filler"); }

 private:
  std::filesystem::path at_;
  bool there_ = false;
};

}  // namespace lockstep::tests
