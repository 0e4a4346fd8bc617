#include "checkpoint/safetensors_writer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/integers.h"
#include "checkpoint/convert.h"
#include "checkpoint/element_parts.h"

namespace lockstep {
namespace {

constexpr std::int64_t kDataAlignment = 64;

constexpr std::int64_t kConvertedElements = 1 << 17;  // at a time

DType stored_type(const NamedTensor& t) { return t.stored.value_or(t.tensor.dtype()); }
std::int64_t stored_bytes(const NamedTensor& t) { return t.tensor.elements() * size_of(stored_type(t)); }

std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors, const Stream* stream) {
  std::vector<const NamedTensor*> order;
  std::set<std::string_view> names;
  for (const NamedTensor& t : tensors) {
    LOCKSTEP_CHECK(t.name != "__metadata__", "a tensor may not be named {}", t.name);
    LOCKSTEP_CHECK(
        !t.tensor.none() && (t.tensor.device() == Device::cpu || (stream && t.tensor.device() != Device::meta)),
        "tensor '{}' has no elements on the CPU", t.name);
    LOCKSTEP_CHECK(t.tensor.contiguous() || (t.shape && !t.stored), "tensor '{}' {} is not contiguous", t.name,
                   t.tensor.shape());
    LOCKSTEP_CHECK(stored_type(t) == t.tensor.dtype() || (is_float(stored_type(t)) && is_float(t.tensor.dtype())),
                   "tensor '{}' of {} to be stored as {}", t.name, name_of(t.tensor.dtype()), name_of(stored_type(t)));
    LOCKSTEP_CHECK(names.insert(t.name).second, "tensor '{}' comes twice", t.name);
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::int64_t wide_a = size_of(stored_type(*a)), wide_b = size_of(stored_type(*b));
    return wide_a != wide_b ? wide_a > wide_b : a->name < b->name;
  });
  return order;
}

// A name or value as JSON text.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception& error) {
    throw ProgramError(fmt::format("text for a safetensors header is not UTF-8: {}", error.what()));
  }
}

std::string header_of(const std::vector<const NamedTensor*>& order, const SafetensorsMetadata& metadata) {
  std::string text = "{", separator;
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += std::exchange(separator, ",") + json_string(key) + ":" + json_string(value);
    }
    text += "}";
  }
  std::int64_t begin = 0;
  for (const NamedTensor* t : order) {
    std::vector<std::int64_t> shape;
    const Shape said = t->shape.value_or(t->tensor.shape());
    for (int i = 0; i < said.dims(); ++i) shape.push_back(said[i]);
    const std::int64_t end = begin + stored_bytes(*t);
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", std::exchange(separator, ","),
                        json_string(t->name), safetensors_name(stored_type(*t)), fmt::join(shape, ","), begin, end);
    begin = end;
  }
  text += "}";
  const auto size = static_cast<std::int64_t>(text.size());
  text.append(static_cast<std::size_t>(round_up(8 + size, kDataAlignment) - 8 - size), ' ');
  return text;
}

void write_converted(DiskFile& file, const NamedTensor& t) {
  const std::int64_t count = t.tensor.elements(), from = size_of(t.tensor.dtype()), to = size_of(stored_type(t));
  const auto room =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(std::min(count, kConvertedElements) * to));
  for (std::int64_t at = 0; at < count; at += kConvertedElements) {
    const std::int64_t now = std::min(kConvertedElements, count - at);
    convert_floats(room.get(), stored_type(t), static_cast<const std::byte*>(t.tensor.raw()) + at * from,
                   t.tensor.dtype(), now);
    file.write(room.get(), now * to);
  }
}

}  // namespace

void write_safetensors(DiskFile& file, std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata,
                       Stream* stream) {
  const std::vector<const NamedTensor*> order = in_file_order(tensors, stream);
  const std::string header = header_of(order, metadata);
  const std::uint64_t length = header.size();
  LOCKSTEP_CHECK(length <= static_cast<std::uint64_t>(kMaxHeaderBytes), "a header of {} bytes", length);
  file.write(&length, sizeof length);
  file.write(header.data(), static_cast<std::int64_t>(length));
  for (const NamedTensor* t : order) {
    if (stored_type(*t) == t->tensor.dtype())
      each_part(t->tensor, stream, [&](const void* data, std::int64_t bytes) { file.write(data, bytes); });
    else
      write_converted(file, *t);
  }
}

WrittenFile write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                              const SafetensorsMetadata& metadata, const Disk& disk) {
  return replace_file(disk, path, [&](DiskFile& file) { write_safetensors(file, tensors, metadata); });
}

}  // namespace lockstep
