// The disk, as this room writes to it: each operation has a name, can be watched, and fails in one way.
//
// Before every operation a hook, if there is one, hears its name and path: "mkdir", "open", "write" (one per
// kWriteBytes), "fsync", "rename", "unlink", "rmdir", "fadvise". Tests kill the process there, or block it, or throw,
// which counts as the operation's failure. There is no other way to the disk in this room for what writes.
//
// A file is never changed in place. It is written beside (PATH.partial), synced and renamed, and its folder is synced
// last, so that a reader sees the old one or the new one, never half of one, even across a power cut.
//
// A disk in memory (in_memory()) survives the process and not the machine: nothing is synced there, and a file that
// exists is written over in place, which spares the system from finding its pages anew.
//
// Failure: EnvironmentError "<path>: <call> failed: <what the system said>", and a remedy where it is known.
// Thread safety: const members may be called from any thread at once, as far as the hook may. Two threads do not write
// to one path.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "base/checksum.h"

namespace lockstep {

class Disk {
 public:
  using Hook = std::function<void(std::string_view operation, const std::filesystem::path& path)>;
  static constexpr std::int64_t kWriteBytes = 1 << 20;

  Disk() = default;
  explicit Disk(Hook hook, std::int64_t write_bytes = kWriteBytes)
      : hook_(std::move(hook)), write_bytes_(write_bytes) {}
  static Disk in_memory(Hook hook = {}, std::int64_t write_bytes = kWriteBytes) {
    Disk disk(std::move(hook), write_bytes);
    disk.syncs_ = false;
    return disk;
  }
  bool syncs() const { return syncs_; }

  void make_folder(const std::filesystem::path& path) const;   // must not be there yet
  void make_folders(const std::filesystem::path& path) const;  // with its parents; what is there already stays
  void sync_folder(const std::filesystem::path& path) const;   // makes what was renamed in it durable
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) const;
  // Both names change what they mean in one moment. False, and nothing done, on a file system that cannot.
  bool swap(const std::filesystem::path& a, const std::filesystem::path& b) const;
  void remove_file(const std::filesystem::path& path) const;
  void remove_tree(const std::filesystem::path& path) const;  // file, link or folder with all in it; absent is fine
  // Makes the next read of this synced file come from the disk and not from memory, as far as the system obliges.
  void drop_cache(const std::filesystem::path& path) const;

  void before(std::string_view operation, const std::filesystem::path& path) const {
    if (hook_) hook_(operation, path);
  }
  std::int64_t write_bytes() const { return write_bytes_; }

 private:
  Hook hook_;
  std::int64_t write_bytes_ = kWriteBytes;
  bool syncs_ = true;
};

struct WrittenFile {
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // base/checksum.h, computed on the way
};

// A file being written, replacing what was there. The disk outlives it. Destroyed before finish(), it stays as it is:
// wrap it in a Provisional.
class DiskFile {
 public:
  DiskFile(const Disk& disk, std::filesystem::path path);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  void write(const void* data, std::int64_t bytes);
  WrittenFile finish();  // syncs and closes; ends the file where what was written ends

 private:
  const Disk& disk_;
  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
  Checksum sum_;
};

// A file or folder on its way: removed again, whatever the way out, unless kept.
class Provisional {
 public:
  Provisional(const Disk& disk, std::filesystem::path path) : disk_(disk), path_(std::move(path)) {}
  ~Provisional();
  Provisional(const Provisional&) = delete;
  Provisional& operator=(const Provisional&) = delete;
  void keep() { kept_ = true; }

 private:
  const Disk& disk_;
  std::filesystem::path path_;
  bool kept_ = false;
};

// Writes `path` beside itself and puts it in place, whole or not at all. Only when the last step fails, the folder's
// sync, is the new file in place though perhaps not yet durable.
WrittenFile replace_file(const Disk& disk, const std::filesystem::path& path,
                         const std::function<void(DiskFile&)>& fill);

// A name from a file that is about to become part of a path: plain, so that it cannot lead out of its folder. True for
// 1 to 255 bytes without '/', '\\' and control characters that do not begin with '.'.
bool is_plain_name(std::string_view name);

}  // namespace lockstep
