// Any bytes at all are either a token file, and then all its tokens and documents are what the header promises, or a
// UserError. The checksums are made right first: a fuzzer cannot guess them, an attacker can compute them.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "data/token_file.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

template <class Call>
bool refused(Call call) {
  try {
    call();
    return false;
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::bad_input_file);
    require(text.starts_with("fuzz: ") && text.find('\n') == std::string::npos && text.size() < 1000);
    return true;
  }
}

void check(const lockstep::TokenFile& file) {
  bool sound = true;
  std::int64_t at = 0;  // where the next document has to begin
  for (std::int64_t i = 0; i < file.documents() && sound; ++i) {
    sound = !refused([&] {
      const auto [first, end] = file.document(i);
      require(first == at && end > first && end <= file.tokens());
      at = end;
    });
  }
  if (sound && file.documents() > 0) require(at == file.tokens());
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
  const bool readable = !refused([&] { file.read(0, ids); });
  for (const std::int32_t id : ids) require(!readable || (id >= 0 && id < file.vocabulary()));
  require(refused([&] { file.verify(); }) == !(sound && readable));
}

void run(const std::vector<std::byte>& bytes) {
  refused([&] { check(lockstep::TokenFile(bytes, "fuzz")); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  if (size >= 64) {
    const auto seal = [&](std::size_t at, std::uint64_t sum) { std::memcpy(bytes.data() + at, &sum, sizeof sum); };
    seal(40, lockstep::checksum(std::span(bytes).subspan(64)));
    seal(56, lockstep::checksum(std::span(bytes).first(56)));
  }
  run(bytes);
  return 0;
}
