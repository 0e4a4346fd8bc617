// A file's bytes in memory, mapped and never written.
//
// Owns the mapping: bytes() is valid while the object lives. Opening is the only call that fails; afterwards any number
// of threads may read. Pages are read from the disk when first touched, so opening a file of any size costs nothing.
//
// The caller's contract: nobody shortens the file while it is mapped. The system answers a read of a page that is gone
// with SIGBUS, which no check here can prevent. Programs that replace a file by writing beside it and renaming are
// safe.
//
// Failure: UserError (bad_input_file) when the path is missing, unreadable, or not a regular file; EnvironmentError
// when the system refuses the mapping itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace lockstep {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }  // empty for an empty file

  // Bytes [begin, end) will not be read again soon: their whole pages leave this process's memory, and come back from
  // the file when they are touched. So that reading a large file once does not hold all of it.
  void forget(std::int64_t begin, std::int64_t end) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep
