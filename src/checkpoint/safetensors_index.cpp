#include "checkpoint/safetensors_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "checkpoint/safetensors_header.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and is read in place");

struct KnownDType {
  std::string_view name;
  std::int64_t bits;
};
constexpr std::array kDTypes = {
    KnownDType{"BOOL", 8},    KnownDType{"U8", 8},      KnownDType{"I8", 8},          KnownDType{"F8_E5M2", 8},
    KnownDType{"F8_E4M3", 8}, KnownDType{"F8_E8M0", 8}, KnownDType{"F8_E4M3FNUZ", 8}, KnownDType{"F8_E5M2FNUZ", 8},
    KnownDType{"F4", 4},      KnownDType{"F6_E2M3", 6}, KnownDType{"F6_E3M2", 6},     KnownDType{"I16", 16},
    KnownDType{"U16", 16},    KnownDType{"F16", 16},    KnownDType{"BF16", 16},       KnownDType{"I32", 32},
    KnownDType{"U32", 32},    KnownDType{"F32", 32},    KnownDType{"C64", 64},        KnownDType{"F64", 64},
    KnownDType{"I64", 64},    KnownDType{"U64", 64},
};

// A name that comes twice is refused at its second place. Sorting finds it without a second copy of every name.
void check_names(const SafetensorsHeader& header, const std::string& where) {
  std::vector<std::uint32_t> order(header.entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int difference = header.entries[a].name.compare(header.entries[b].name);
    return difference != 0 ? difference < 0 : a < b;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const SafetensorsEntry& entry = header.entries[order[i]];
    if (entry.name == header.entries[order[i - 1]].name) {
      refuse_safetensors(where, header.places[order[i]], "tensor " + printable(entry.name) + " comes twice");
    }
  }
}

// The entries, in order, must be adjacent over [begin, end) of the file.
void check_cover(const std::vector<SafetensorsEntry>& entries, std::int64_t begin, std::int64_t end,
                 const std::string& where) {
  const SafetensorsEntry* last = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < begin) {
      refuse_safetensors(where, entry.begin,
                         "tensors " + printable(last->name) + " and " + printable(entry.name) + " overlap");
    }
    if (entry.begin > begin) {
      refuse_safetensors(
          where, begin,
          fmt::format("{} bytes before tensor {} belong to no tensor", entry.begin - begin, printable(entry.name)));
    }
    begin = entry.end;
    last = &entry;
  }
  if (begin != end)
    refuse_safetensors(where, begin, fmt::format("the last {} bytes of the file belong to no tensor", end - begin));
}

}  // namespace

SafetensorsIndex::SafetensorsIndex(std::vector<SafetensorsEntry> entries, SafetensorsMetadata metadata)
    : entries_(std::move(entries)), by_name_(entries_.size()), metadata_(std::move(metadata)) {
  // Ties are tensors without elements beside a neighbour: they come first, so that the neighbour's end stays the last
  // one.
  const auto key = [](const SafetensorsEntry& e) { return std::tie(e.begin, e.end, e.name); };
  std::sort(entries_.begin(), entries_.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::uint32_t a, std::uint32_t b) { return entries_[a].name < entries_[b].name; });
}

const SafetensorsEntry* SafetensorsIndex::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](std::uint32_t i, std::string_view n) { return entries_[i].name < n; });
  return at != by_name_.end() && entries_[*at].name == name ? &entries_[*at] : nullptr;
}

SafetensorsIndex parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < 8) {
    refuse_safetensors(where, static_cast<std::int64_t>(file.size()),
                       fmt::format("the file ends inside the 8 bytes of the header's length; it has {}", file.size()));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length == 0) refuse_safetensors(where, 0, "the header's length is 0");
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    refuse_safetensors(
        where, 0, fmt::format("the header's length is {}, above the format's limit of {}", length, kMaxHeaderBytes));
  }
  if (length > file.size() - 8) {
    refuse_safetensors(where, 0,
                       fmt::format("the header's length is {}, but only {} bytes follow", length, file.size() - 8));
  }
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + 8, length);
  const auto end = static_cast<std::int64_t>(file.size()), begin = static_cast<std::int64_t>(8 + length);

  SafetensorsHeader header = read_safetensors_header(json, end - begin, where);
  check_names(header, where);
  SafetensorsIndex index(std::move(header.entries), std::move(header.metadata));
  check_cover(index.entries(), begin, end, where);
  return index;
}

std::optional<std::int64_t> safetensors_bits(std::string_view dtype) {
  for (const KnownDType& known : kDTypes) {
    if (known.name == dtype) return known.bits;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view dtype) {
  for (const DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64}) {
    if (safetensors_name(t) == dtype) return t;
  }
  return std::nullopt;
}

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;  // no weight is stored in them
  }
  return "?";
}

}  // namespace lockstep
