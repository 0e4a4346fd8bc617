// Any bytes at all are either the .idx of a .bin of some size, and then its documents follow one another from the first
// token to the last, or a UserError. The first two bytes say the .bin's size; a right beginning is put in their place.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/elsewhere/megatron_index.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

void check(const std::vector<std::byte>& idx, std::int64_t bin_bytes) {
  try {
    const lockstep::MegatronIndex index(idx, bin_bytes, "fuzz");
    require(index.tokens() * lockstep::bytes_of(index.type()) == bin_bytes);
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < index.documents(); ++i) {
      const auto [first, end] = index.document(i);
      require(first == at && end >= first && end <= index.tokens());
      at = end;
    }
    require(index.documents() == 0 || at == index.tokens());
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::bad_input_file);
    require(text.starts_with("fuzz: ") && text.find('\n') == std::string::npos && text.size() < 1000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::int64_t bin_bytes = data[0] | data[1] << 8;
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> idx(first + 2, first + size);
  check(idx, bin_bytes);
  std::vector<std::byte> sealed(17, std::byte{0});
  std::memcpy(sealed.data(), lockstep::kMegatronMagic.data(), lockstep::kMegatronMagic.size());
  sealed[9] = std::byte{1};
  sealed.insert(sealed.end(), idx.begin(), idx.end());
  check(sealed, bin_bytes);
  return 0;
}
