// Any text at all is either a manifest whose parts hold together and which is written and read as itself, or a
// UserError of one line. A text is tried as it is and, so that the fuzzer gets past the checksum, under a seal.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

// Slices in order and within the tensor, as many elements as it has, and, where they can be counted, each of them once.
void check_cover(const lockstep::ManifestTensor& tensor, unsigned __int128 elements) {
  constexpr std::size_t kCounted = 1 << 16;
  std::vector<char> held(elements <= kCounted ? static_cast<std::size_t>(elements) : 0);
  unsigned __int128 sum = 0;
  std::int64_t last = -1;
  for (const lockstep::ManifestSlice& slice : tensor.slices) {
    const lockstep::StridedRange& rows = slice.range;
    require(rows.begin > last && rows.end() > rows.begin && static_cast<unsigned __int128>(rows.end()) <= elements);
    last = rows.begin;
    require(rows == rows.joined() && rows.pitch >= rows.row);
    sum += static_cast<unsigned __int128>(rows.row) * static_cast<unsigned __int128>(rows.rows);
    for (std::int64_t i = 0; !held.empty() && i < rows.elements(); ++i) {
      char& one = held.at(static_cast<std::size_t>(rows.at(i)));
      require(one == 0);
      one = 1;
    }
  }
  require(sum == elements);
}

void check(const lockstep::Manifest& manifest) {
  std::set<std::string> files;
  for (const lockstep::ManifestFile& file : manifest.files) {
    require(lockstep::is_plain_name(file.name) && file.name.find('/') == std::string::npos && file.bytes >= 0);
    require(files.insert(file.name).second);
  }
  for (const lockstep::ManifestTensor& tensor : manifest.tensors) {
    unsigned __int128 elements = 1;  // wider than the reader's, so that it cannot fail in the way that one might
    for (const std::int64_t extent : tensor.shape) elements *= static_cast<unsigned __int128>(extent);
    require(elements >= 1 && elements * 8 < static_cast<unsigned __int128>(1) << 63);
    check_cover(tensor, elements);
    for (const lockstep::ManifestSlice& slice : tensor.slices) require(files.contains(slice.file));
    require(manifest.find(tensor.part, tensor.name) == &tensor);
  }
  require(lockstep::parse_manifest(lockstep::manifest_text(manifest), "fuzz") == manifest);
}

void run(const std::string& text) {
  try {
    check(lockstep::parse_manifest(text, "fuzz"));
  } catch (const lockstep::UserError& error) {
    const std::string said = error.what();
    require(error.code() == lockstep::ExitCode::checkpoint);
    require(said.starts_with("fuzz: ") && said.find('\n') == std::string::npos && said.size() < 2000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  run(text);
  if (text.starts_with('{')) run(lockstep::seal_manifest(text));
  return 0;
}
