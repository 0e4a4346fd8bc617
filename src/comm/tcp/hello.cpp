#include "comm/tcp/hello.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "comm/error.h"

namespace lockstep::tcp {

namespace {

constexpr std::string_view kMagic("LSTCP\0\0\1", 8);
constexpr char kHexDigits[] = "0123456789abcdef";

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t at = 0; at < count;) {
    const ssize_t got = ::getrandom(bytes.data() + at, count - at, 0);
    if (got < 0 && errno != EINTR) throw EnvironmentError(fmt::format("getrandom: {}", std::strerror(errno)));
    if (got > 0) at += static_cast<std::size_t>(got);
  }
  return bytes;
}

bool same_whatever_differs(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() != b.size();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

}  // namespace

WorldKeys WorldKeys::make() { return {random_bytes(kKeyBytes), random_bytes(kKeyBytes)}; }

std::string WorldKeys::text() const {
  std::string hex;
  for (const char c : hello + answer) {
    hex += kHexDigits[static_cast<unsigned char>(c) >> 4];
    hex += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

WorldKeys WorldKeys::parse(const std::string& text) {
  const auto digit = [](char c) { return std::string_view(kHexDigits, 16).find(c); };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    if (digit(text[i]) > 15 || digit(text[i + 1]) > 15) break;
    bytes += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
  }
  if (text.size() != 4 * kKeyBytes || bytes.size() != 2 * kKeyBytes)
    throw CommError("rank 0 has given no keys for the connections between hosts");
  return {bytes.substr(0, kKeyBytes), bytes.substr(kKeyBytes)};
}

std::string hello_with(const std::string& key, Ends ends) {
  std::string bytes = std::string(kMagic) + key;
  const std::int32_t ranks[2] = {ends.from, ends.to};
  bytes.append(reinterpret_cast<const char*>(ranks), sizeof ranks);
  return bytes;
}

std::optional<Ends> check_hello(std::string_view bytes, const std::string& key) {
  const std::size_t proof = kMagic.size() + kKeyBytes;
  if (bytes.size() != kHelloBytes || !same_whatever_differs(bytes.substr(0, proof), std::string(kMagic) + key))
    return std::nullopt;
  std::int32_t ranks[2];
  std::memcpy(ranks, bytes.data() + proof, sizeof ranks);
  return Ends{ranks[0], ranks[1]};
}

}  // namespace lockstep::tcp
