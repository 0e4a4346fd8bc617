// Any text at all is either a manifest whose parts hold together and which is written and read as itself, or a
// UserError of one line. A text is tried as it is and, so that the fuzzer gets past the checksum, under a seal.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "base/error.h"
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
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
    std::int64_t next = 0;
    for (const lockstep::ManifestSlice& slice : tensor.slices) {
      require(slice.begin == next && slice.end > slice.begin && files.contains(slice.file));
      next = slice.end;
    }
    require(static_cast<unsigned __int128>(next) == elements);
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
