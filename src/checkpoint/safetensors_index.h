// What a safetensors file says it holds, proven to be true of its bytes.
//
// The format: 8 bytes of little-endian header length; a JSON object of {name: {dtype, shape, data_offsets}} with an
// optional "__metadata__" of strings; then the tensors' bytes, row-major, little-endian, end to end.
//
// parse_safetensors is a pure function of the bytes. It returns only when all of this holds:
//   - the length is 1 to 100,000,000 (the format's own limit) and inside the file;
//   - the header starts with '{' and is UTF-8 JSON;
//   - no tensor name, field of an entry or metadata key comes twice, and entries have the format's three fields alone;
//   - every dtype is known, extents are non-negative, and shape x dtype gives the bytes that the offsets give;
//   - the tensors, put in order, cover the data area exactly: no overlap, no hole, nothing after the last one.
// Tensors without elements are legal, and so is any number of dims up to kMaxHeaderDims. Sizes must fit 63 bits with
// zero extents left out of the product, so strides computed from an accepted shape cannot overflow either.
//
// A header is read without building a document of it, so a hostile one costs neither stack nor memory: nesting is
// bounded by the states of the reader, and the counts below bound what a valid header may grow to.
//
// Failure: UserError (bad_input_file), one line: `where`, the byte of the file, the reason, a remedy.
// Thread safety: an index is a value; const members may be called from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace lockstep {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file writes it: "F32", "BF16", …
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // offsets in the file
  bool operator==(const SafetensorsEntry&) const = default;
};

using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

// The limits. The first is the format's; the others are ours, far above any real file.
inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::int64_t kMaxHeaderToken = 4 << 20;  // bytes of one string or number, with the blanks before it
inline constexpr std::size_t kMaxHeaderTensors = 1'000'000;
inline constexpr std::size_t kMaxHeaderMetadata = 65'536;
inline constexpr std::size_t kMaxHeaderDims = 64;

class SafetensorsIndex {
 public:
  SafetensorsIndex() = default;
  SafetensorsIndex(std::vector<SafetensorsEntry> entries, SafetensorsMetadata metadata);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by offset in the file
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const SafetensorsEntry* find(std::string_view name) const;  // null when there is none

 private:
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::uint32_t> by_name_;  // places in entries_, sorted by name
  SafetensorsMetadata metadata_;
};

// `where` names the file in errors.
SafetensorsIndex parse_safetensors(std::span<const std::byte> file, const std::string& where);

// Bits of one element of a dtype of the format (some are narrower than a byte); nothing for a name it does not know.
std::optional<std::int64_t> safetensors_bits(std::string_view dtype);

// Between the format's names and the element types of our tensors, which are fewer.
std::optional<DType> dtype_from_safetensors(std::string_view dtype);
std::string_view safetensors_name(DType dtype);

}  // namespace lockstep
