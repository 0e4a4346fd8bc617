#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "checkpoint/safetensors_header.h"

namespace lockstep {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), index_(parse_safetensors(file_.bytes(), path.string())) {}

ConstTensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry) {
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: no tensor {} among its {}", path_.string(), printable(name), entries().size()),
                    "check that the file belongs to this model");
  }
  const std::optional<DType> dtype = dtype_from_safetensors(entry->dtype);
  if (!dtype) {
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: byte {}: tensor {} is {}, which cannot be computed with", path_.string(),
                                entry->begin, printable(name), entry->dtype),
                    "convert it to F64, F32, BF16, F16, I32 or I64");
  }
  if (entry->shape.size() > Shape::kMaxDims) {
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: byte {}: tensor {} has {} dims, at most {} are supported", path_.string(),
                                entry->begin, printable(name), entry->shape.size(), Shape::kMaxDims),
                    "store it under another shape");
  }
  return ConstTensor(aligned(*entry, size_of(*dtype)), *dtype, Device::cpu, Shape(std::span(entry->shape)));
}

const std::byte* SafetensorsFile::aligned(const SafetensorsEntry& entry, std::int64_t alignment) const {
  const std::byte* data = file_.bytes().data() + entry.begin;
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0) return data;
  static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 8, "new aligns for every element type");
  const std::lock_guard lock(copies_mutex_);
  std::unique_ptr<std::byte[]>& copy = copies_[&entry];
  if (!copy) {
    auto bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(entry.end - entry.begin));
    std::copy(data, data + (entry.end - entry.begin), bytes.get());
    copy = std::move(bytes);
  }
  return copy.get();
}

}  // namespace lockstep
