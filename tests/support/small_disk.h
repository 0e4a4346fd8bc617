// A small disk of its own at a path, while it lives: one that can be filled and emptied.
#pragma once
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
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

  void fill() const {
    std::ofstream file(at_ / "filler", std::ios::binary);
    const std::string part(4096, 'x');
    while (file.write(part.data(), std::ssize(part)) && file.flush()) {
    }
  }
  void empty() const { std::filesystem::remove(at_ / "filler"); }

 private:
  std::filesystem::path at_;
  bool there_ = false;
};

}  // namespace lockstep::tests
