// Any bytes at all are either a safetensors file, and then everything the index says of them is true, or a UserError.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors_index.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

void check(const lockstep::SafetensorsIndex& index, const std::uint8_t* data, std::int64_t file_bytes) {
  std::set<std::string> names;
  std::int64_t at = 0;  // where the next tensor has to begin
  std::memcpy(&at, data, 8);
  at += 8;
  for (const lockstep::SafetensorsEntry& entry : index.entries()) {
    require(entry.begin == at && entry.end >= entry.begin && entry.end <= file_bytes);
    at = entry.end;
    require(names.insert(entry.name).second);
    require(index.find(entry.name) == &entry);
    // A wider type than the reader's, so that this sum cannot fail in the way that one might.
    unsigned __int128 bits = static_cast<unsigned __int128>(*lockstep::safetensors_bits(entry.dtype));
    for (const std::int64_t extent : entry.shape) bits *= static_cast<unsigned __int128>(extent);
    require(bits == static_cast<unsigned __int128>(entry.end - entry.begin) * 8);
  }
  require(at == file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(lockstep::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz"), data,
          static_cast<std::int64_t>(size));
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::bad_input_file);
    require(text.starts_with("fuzz: byte ") && text.find('\n') == std::string::npos && text.size() < 1000);
  }
  return 0;
}
