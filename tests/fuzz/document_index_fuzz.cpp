// Any bytes at all are either an index of documents, and then its samples are within the data and the sample's room, or
// a UserError. The checksums are made right first: a fuzzer cannot guess them, an attacker can compute them.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "data/document_index.h"

namespace {

constexpr std::int64_t kT = 16, kTokens = 1000;
constexpr std::uint64_t kIdentity = 7;

void require(bool claim) {
  if (!claim) std::abort();
}

void check(const lockstep::DocumentIndex& index) {
  std::int64_t all = 0, pieces = 0;
  for (std::int64_t s = 0; s < index.samples(); ++s) {
    std::int64_t room = index.T();
    require(index.pieces(s) >= 1);
    for (std::int64_t i = 0; i < index.pieces(s); ++i) {
      const auto piece = index.piece(s, i);
      require(piece.count >= 1 && piece.first >= 0 && piece.first + piece.count + (piece.continues ? 1 : 0) <= kTokens);
      room -= piece.count;
      all += piece.count;
      ++pieces;
    }
    require(room >= 0);
  }
  require(all == index.tokens() && pieces >= index.samples() && index.filled() <= 1);
  require(index.documents()->work().tokens <= static_cast<double>(kT));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  constexpr auto kHeader = static_cast<std::size_t>(lockstep::kDocumentIndexHeaderBytes);
  if (size >= kHeader) {
    const auto put = [&](std::size_t at, std::uint64_t value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
    put(16, kIdentity);
    put(72, lockstep::checksum(std::span(bytes).subspan(kHeader)));
    put(kHeader - 8, lockstep::checksum(std::span(bytes).first(kHeader - 8)));
  }
  try {
    check(
        lockstep::DocumentIndex(std::move(bytes), "fuzz", {.identity = kIdentity, .T = kT, .source_tokens = kTokens}));
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::bad_input_file);
    require(text.starts_with("fuzz: ") && text.find('\n') == std::string::npos && text.size() < 1000);
  }
  return 0;
}
