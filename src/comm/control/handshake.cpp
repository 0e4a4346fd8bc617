#include "comm/control/handshake.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "comm/error.h"

namespace lockstep::control {

namespace {

constexpr std::string_view kGreetingMagic = "LSCT";

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t have = 0; have < count;) {
    const ssize_t got = ::getrandom(bytes.data() + have, count - have, 0);
    if (got < 0 && errno != EINTR) throw EnvironmentError(fmt::format("getrandom: {}", std::strerror(errno)));
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string proof(const Token& token, std::string_view role, std::string_view coordinators, std::string_view ranks) {
  std::string text(role);
  text.append(coordinators).append(ranks);
  const Digest digest = hmac_sha256(token.key(), text);
  return {digest.begin(), digest.end()};
}

std::string protocol_bytes() {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(kProtocol >> shift);
  return bytes;
}

}  // namespace

Token::Token(std::string_view text) : key_(sha256(text)) {
  if (text.size() < 16)
    throw UserError(ExitCode::usage, fmt::format("a token of {} characters can be guessed", text.size()),
                    "give all ranks the same one of at least 16");
}

std::string Token::make() {
  std::string text;
  for (const char c : random_bytes(32)) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string make_nonce() { return random_bytes(kNonceBytes); }

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;  // lengths are no secret
  unsigned differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

std::string refusal() { return std::string(kVerdictBytes, '\0'); }

std::string CoordinatorHandshake::greeting() const { return std::string(kGreetingMagic) + protocol_bytes() + nonce_; }

std::string CoordinatorHandshake::verdict(std::string_view answer) const {
  const std::string_view theirs = answer.substr(0, kNonceBytes);
  if (answer.size() != kAnswerBytes ||
      !equal_in_constant_time(answer.substr(kNonceBytes), proof(token_, "rank", nonce_, theirs)))
    return "";
  return proof(token_, "coordinator", nonce_, theirs);
}

std::string RankHandshake::answer(std::string_view greeting) {
  if (greeting.size() != kGreetingBytes || !greeting.starts_with(kGreetingMagic))
    throw CommError("what listens there is no coordinator of ranks");
  if (greeting.substr(4, 4) != protocol_bytes())
    throw CommError("the coordinator there is of another version; start all ranks with the same program");
  their_nonce_ = greeting.substr(8);
  return nonce_ + proof(token_, "rank", their_nonce_, nonce_);
}

void RankHandshake::check(std::string_view verdict) const {
  if (equal_in_constant_time(verdict, refusal()))
    throw CommError("the coordinator refuses this rank's token; give all ranks the same one");
  if (!equal_in_constant_time(verdict, proof(token_, "coordinator", their_nonce_, nonce_)))
    throw CommError("the coordinator there does not know the token; give all ranks the same one");
}

}  // namespace lockstep::control
