// A safetensors file, read in place.
//
// Opening maps the file and proves its whole header (safetensors_index.h says what that means) before anything is
// handed out; the tensors' own bytes are read from the disk only when touched.
//
// tensor() gives a view of the mapped bytes: the file object owns them and must outlive every view. The format lets a
// header have any length, so a tensor may begin at an address its element type cannot be read from. Such a tensor is
// copied, once, when first asked for, into an aligned buffer that the file object keeps; every later call gives that
// same copy. Files of common writers pad their header and are never copied.
//
// Views exist for F64, F32, BF16, F16, I32 and I64 tensors of up to four dims. Anything else the format allows is
// listed by entries() and refused by tensor().
//
// The file must not be shortened while this object lives (mapped_file.h).
// Thread safety: every member may be called from any thread at once.
// Failure: UserError (bad_input_file), one line with the file, the byte where there is one, the reason and a remedy.
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/safetensors_index.h"
#include "tensor/tensor.h"

namespace lockstep {

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return index_.entries(); }  // by offset in the file
  const SafetensorsMetadata& metadata() const { return index_.metadata(); }
  const SafetensorsEntry* find(std::string_view name) const { return index_.find(name); }  // null when there is none
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  ConstTensor tensor(std::string_view name) const;
  // The tensor's bytes will not be read again soon (mapped_file.h).
  void forget(const SafetensorsEntry& entry) const { file_.forget(entry.begin, entry.end); }

 private:
  const std::byte* aligned(const SafetensorsEntry& entry, std::int64_t alignment) const;

  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsIndex index_;
  mutable std::mutex copies_mutex_;
  mutable std::map<const SafetensorsEntry*, std::unique_ptr<std::byte[]>> copies_;  // of misaligned tensors
};

}  // namespace lockstep
